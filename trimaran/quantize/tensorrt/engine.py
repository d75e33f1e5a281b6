"""Makes a TensorRT engine of an ONNX artifact: built in a child process, its kernels counted, its machine recorded."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from trimaran.core.artifact import Artifact, Draft, Recipe
from trimaran.core.backends import backend
from trimaran.core.devices import builds_by_trtexec
from trimaran.core.engine_identity import EngineIdentity, installed_version, machine_identity
from trimaran.core.environment import driver_present
from trimaran.core.errors import ToolError, UnavailableError, UsageError
from trimaran.core.gpu_lock import exclusive_gpu
from trimaran.core.isolation import Worker
from trimaran.core.progress import Progress, Step
from trimaran.core.spec import Range, ShapeProfile, profile_shapes
from trimaran.core.store import Store
from trimaran.quantize.tensorrt.engine_process import EngineOptions, build_plan
from trimaran.quantize.tensorrt.engine_receipt import (
    expected_of,
    kernel_counts,
    note_shortfall,
    receipt,
    refuse_shortfall,
)
from trimaran.quantize.tensorrt.trtexec import build_with_trtexec

Runtime = Literal["tensorrt", "tensorrt_rtx"]
ENTRY = "model.plan"
LAYERS = "layers.json"
DEADLINE_S = 3600.0


def build_engine(
    parent: Artifact,
    options: EngineOptions | None = None,
    *,
    runtime: Runtime = "tensorrt",
    profiles: Sequence[ShapeProfile] = (),
    timing_cache: Path | None = None,
    allow_shortfall: bool = False,
    exact_shapes: bool = False,
    device: int = 0,
    deadline_s: float = DEADLINE_S,
    store: Store,
    progress: Progress,
) -> Artifact:
    """Build the plan of an ONNX artifact, for the GPU `device` (tensorrt) or for named ones (tensorrt_rtx).

    The types are the graph's. `exact_shapes` opens the plan as Triton's own backend does: without buckets and CUDA
    graphs. `profiles` defaults to the artifact's own; see `short_and_long`. `timing_cache` defaults to one of the store
    for each machine. Raises ToolError with the builder's words, ValidationError if fewer kernels than the graph
    promises run in its types.
    """
    options = options or EngineOptions()
    _check_request(parent, runtime, options)
    ranges = tuple(profiles) or (parent.profile,)
    covered = _hull(ranges)
    identity = _identity(runtime, options, device)
    # How the session opens the plan, where that is not the default.
    opened = {**({"exact_shapes": True} if exact_shapes else {}), **({"device": device} if device else {})}
    settings = {**options.model_dump(mode="json"), "profiles": [row.model_dump() for row in ranges]}
    recipe = Recipe(
        step=f"{runtime}-engine",
        parents=(parent.digest,),
        parameters={
            **settings,
            # A plan outlives its driver: neither that nor the CUDA it speaks is part of what the plan is.
            "identity": identity.model_dump(exclude={"cuda", "driver", "oldest_driver"}),
            **opened,
        },
        tools={runtime: identity.version},
    )
    log = store.root / "logs" / f"{recipe.step}-{recipe.digest[:16]}.log"

    def make(folder: Path) -> Draft:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.unlink(missing_ok=True)
        request = {
            "graph": str(parent.entry_path),
            "plan": str(folder / ENTRY),
            "runtime": runtime,
            "profiles": [profile_shapes(parent.signature, row) for row in ranges],
            **_timing_cache(timing_cache, store, identity),
            "device": device,
            "options": options.model_dump(mode="json"),
        }
        # Other work on the GPU would spoil the builder's choice of kernels.
        with exclusive_gpu(device) if runtime == "tensorrt" else contextlib.nullcontext():
            built = _build(request, log, step, deadline_s)
        checks = receipt(expected_of(parent.entry_path, parent), built["layers"])
        if not allow_shortfall:
            # How plain TensorRT writes its layers was never seen: until a real log is committed, it is only warned of.
            if runtime == "tensorrt":
                note_shortfall(checks, progress)
            else:
                refuse_shortfall(checks, log)
        (folder / LAYERS).write_text(json.dumps(built["layers"], indent=1) + "\n", encoding="utf-8")
        facts = {
            "identity": identity.model_dump(),
            "options": options.model_dump(mode="json"),
            "profiles": settings["profiles"],
            "kernels": kernel_counts(built["layers"]),
            "build_s": built["build_s"],
            "builder_warnings": built["warnings"],
            "log": str(log),
        }
        return parent.derive(
            folder,
            format="tensorrt",
            backend=runtime,
            profile=covered,
            entry=ENTRY,
            engine_options={**_engine_options(parent, runtime, identity), **opened},
            execution_environment={},
            checks=checks,
            details={"engine": facts},
        )

    with progress.stage(f"{runtime} engine") as step:
        artifact = store.produce(recipe, make)
        step.outcome(f"{'; '.join(map(str, artifact.checks))}, {artifact.size_bytes / 1e6:.0f} MB")
    return artifact


def _timing_cache(named: Path | None, store: Store, identity: EngineIdentity) -> dict[str, Any]:
    """A cache of ours that TensorRT refuses is replaced, a named one is not touched. tensorrt_rtx times nothing."""
    if named is not None or identity.runtime != "tensorrt":
        return {"timing_cache": str(named) if named else None}
    return {"timing_cache": str(store.root / "timing" / f"{identity.folder}.cache"), "replace_cache": True}


def short_and_long(profile: ShapeProfile, *, split: int) -> tuple[ShapeProfile, ShapeProfile]:
    """Return two profiles, so that short texts get kernels tuned for them: sequences up to `split`, and longer ones."""
    sequence = profile.sequence
    if not sequence.minimum <= split < sequence.maximum:
        raise UsageError(f"A split of the sequences {sequence} lies inside them, found {split}.")
    typical = min(max(sequence.typical, split + 1), sequence.maximum)
    short = Range(minimum=sequence.minimum, typical=min(sequence.typical, split), maximum=split)
    return (
        profile.model_copy(update={"sequence": short}),
        profile.model_copy(update={"sequence": Range(minimum=split + 1, typical=typical, maximum=sequence.maximum)}),
    )


def _check_request(parent: Artifact, runtime: Runtime, options: EngineOptions) -> None:
    if parent.format != "onnx":
        raise UsageError(f"An engine is built from an ONNX artifact, not from {parent.format}.")
    row = backend(runtime)
    if installed_version(runtime) is None:
        raise UnavailableError(f"{runtime} is not installed.", hint=row.hint())
    if runtime == "tensorrt" and not driver_present():
        # Without a driver its builder is a null pointer and its runtime crashes, so it is not even imported.
        raise UnavailableError(
            "tensorrt needs an NVIDIA driver, and there is no libcuda.so.1 on this machine.",
            hint="Install the NVIDIA driver on a machine with a GPU, or use --runtime tensorrt-rtx, which needs none.",
        )
    if runtime == "tensorrt" and options.compute_capabilities:
        raise UsageError(
            "tensorrt builds for the GPU of this machine; it takes no compute capability.",
            hint="Leave --compute-capability out, or use --runtime tensorrt-rtx.",
        )
    if runtime == "tensorrt_rtx" and options.hardware_compatible != "NONE":
        # Its builder accepts the setting silently; nothing that we saw shows what the plan then promises.
        raise UsageError(
            "tensorrt_rtx names the GPUs of a plan by compute capability; hardware compatibility is plain tensorrt's.",
            hint="Such as --compute-capability 8.6,8.9,12.0.",
        )
    if runtime == "tensorrt_rtx" and not options.compute_capabilities and not driver_present():
        raise UsageError(
            "With no GPU here, tensorrt_rtx must be told for which ones to build.",
            hint="Such as --compute-capability 8.6,8.9,12.0.",
        )


def _identity(runtime: Runtime, options: EngineOptions, device: int) -> EngineIdentity:
    """Return what a machine that opens the plan must match. With named compute capabilities, this GPU plays no part."""
    modes: dict[str, Any] = options.model_dump(include={"hardware_compatible"})
    if options.compute_capabilities:
        modes |= {"compute_capabilities": options.compute_capabilities, "gpu": None, "cuda": None, "driver": None}
        modes |= {"oldest_driver": None}
    return machine_identity(runtime, device).model_copy(update=modes)


def _build(request: dict[str, Any], log: Path, step: Step, deadline_s: float) -> dict[str, Any]:
    """Run `build_plan` in a child process; its progress comes through a file beside the log."""
    progress = log.with_suffix(".progress")
    try:
        with Worker(log=log) as worker, _watching(progress, step):
            build = build_with_trtexec if request["runtime"] == "tensorrt" and builds_by_trtexec() else build_plan
            return dict(worker.call(build, deadline_s, progress=str(progress), **request))
    except ToolError as error:
        error.log = str(log)
        error.hint = f"{error.hint} The builder's log is {log}.".strip()
        raise
    finally:
        progress.unlink(missing_ok=True)


@contextlib.contextmanager
def _watching(progress: Path, step: Step) -> Iterator[None]:
    """Pass on what the child's progress monitor writes."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.2):
            lines = progress.read_text(encoding="utf-8").splitlines() if progress.is_file() else []
            with contextlib.suppress(ValueError, IndexError):
                phase, finished, total = json.loads(lines[-1])
                step.advance(finished, total, phase)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _hull(ranges: Sequence[ShapeProfile]) -> ShapeProfile:
    """Return the shapes that the profiles cover together; refuse a gap between them."""
    ordered = sorted(ranges, key=lambda row: row.sequence.minimum)
    for before, after in itertools.pairwise(ordered):
        if after.sequence.minimum > before.sequence.maximum + 1 or after.batch != before.batch:
            raise UsageError(
                f"Profiles must share their batches and leave no gap, found sequences {before.sequence} and "
                f"{after.sequence}, batches {before.batch} and {after.batch}."
            )
    longest = max(ordered, key=lambda row: row.sequence.maximum)
    sequence = longest.sequence.model_copy(update={"minimum": ordered[0].sequence.minimum})
    return longest.model_copy(update={"sequence": sequence})


def _engine_options(parent: Artifact, runtime: Runtime, identity: EngineIdentity) -> dict[str, Any]:
    """Return what the session must know: the machine, how to pad inputs to a bucket, which output axes to cut."""
    spec = parent.tokenizer
    return {
        "runtime": runtime,
        "identity": identity.model_dump(mode="json"),
        "padding": {"input_ids": spec.pad_id, "attention_mask": 0, "token_type_ids": spec.pad_type_id},
        "pad_side": spec.pad_side,
        "sequence_axes": {
            output.name: [axis for axis, dim in enumerate(output.dims) if dim == "sequence"]
            for output in parent.signature.outputs
        },
    }
