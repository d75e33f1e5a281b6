"""A trained model becomes a validated ONNX artifact, proven against the reference artifact beside it."""

from __future__ import annotations

import gc
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from trimaran.core.artifact import Artifact, Check, Draft, Recipe
from trimaran.core.environment import tools, usable_cores
from trimaran.core.families import Exporter, family
from trimaran.core.onnx_graph import check_graph, graph_facts
from trimaran.core.onnx_write import EXTERNAL_ABOVE_BYTES, write_model
from trimaran.core.progress import Progress, Step
from trimaran.core.spec import ModelRef, Signature
from trimaran.core.store import Store
from trimaran.export.reference import model_ref_of
from trimaran.export.samples import sample_inputs
from trimaran.export.trace import Array, trace
from trimaran.export.validate import ATOL, Infer, prove_padding, prove_parity
from trimaran.judging.equality import Arrays
from trimaran.runtime.onnxruntime_engine import Engine as OnnxEngine

ENTRY = "model.onnx"
DYNAMO_OPSET = 20
SLICE_TOKENS = 2048


def export(
    parent: Artifact,
    *,
    store: Store,
    progress: Progress,
    atol: float = ATOL,
    exporter: Exporter | None = None,
    external_above_bytes: int = EXTERNAL_ABOVE_BYTES,
    threads: int | None = None,
) -> Artifact:
    """The reference's computation as one ONNX graph, proven equal over the corners of the profile.

    `exporter` takes torch's other exporter than the family's row names; nothing falls back to it by itself. `threads`
    are for the proof: all, unless something else runs beside it.
    """
    ref = model_ref_of(parent)
    row = family(ref.family)
    chosen = exporter or row.exporter
    opset = row.opset if chosen == "torchscript" else max(row.opset, DYNAMO_OPSET)
    recipe = Recipe(
        step="export",
        parents=(parent.digest,),
        parameters={"exporter": chosen, "opset": opset, "atol": atol, "external_above_bytes": external_above_bytes},
        tools=tools("torch", "transformers", "onnx", "onnxruntime"),
    )

    def make(folder: Path) -> Draft:
        sample = _sampler(parent, ref)
        # Each step holds the weights by itself: together they would be several times the checkpoint.
        facts = write_traced(ref, parent.signature, sample, folder / ENTRY, chosen, opset, external_above_bytes)
        gc.collect()
        proofs = prove(parent, folder / ENTRY, sample, atol, step, threads=threads or usable_cores())
        shutil.copy(parent.directory / "tokenizer.json", folder / "tokenizer.json")
        return Draft(
            **{
                **parent.model_dump(include=set(Draft.model_fields)),
                "format": "onnx",
                "backend": "onnxruntime",
                "entry": ENTRY,
                "engine_options": {},
                "checks": (*proofs, CLEAN),
                "details": {**parent.details, "exporter": chosen, **facts},
            }
        )

    with progress.stage("export") as step:
        artifact = store.produce(recipe, make)
        step.outcome(f"{artifact.checks[0]}, {artifact.size_bytes / 1e6:.0f} MB")
    return artifact


CLEAN = Check(name="onnx checker and shape inference", observed="clean", limit="clean", comparison="==")


def write_traced(
    ref: ModelRef,
    signature: Signature,
    sample: Callable[[int, int], dict[str, Array]],
    path: Path,
    exporter: Exporter,
    opset: int,
    external_above_bytes: int,
) -> dict[str, Any]:
    """Traces the model, checks the graph, writes it; returns the graph's facts for the manifest."""
    from trimaran.export.wrappers import complete_module

    module = complete_module(ref, attention="eager")
    model, shared_bytes = trace(module, signature, sample, exporter=exporter, opset=opset)
    check_graph(model)
    external = write_model(model, path, external_above_bytes=external_above_bytes)
    return {
        **graph_facts(model),
        "external_weights": external,
        "shared_weight_bytes": shared_bytes,
        "traced_attention": "eager",
    }


def prove(
    parent: Artifact, path: Path, sample: Callable[..., Arrays], atol: float, step: Step, *, threads: int
) -> tuple[Check, ...]:
    """Equal to eager over the profile, whatever the padding, and alone as in a batch. One engine at a time."""
    from trimaran.export.torch_engine import Engine as TorchEngine

    # A small model is proven sooner on one thread than the threads of two runtimes take to agree.
    threads = threads if parent.details.get("checkpoint_fp32_bytes", 0) > 50_000_000 else 1
    eager = TorchEngine(str(parent.entry_path), threads=threads, options=parent.engine_options)
    wanted = iter([in_slices(eager.infer, sample(*shape)) for shape in parent.profile.corners()])
    eager.close()
    gc.collect()
    graph = OnnxEngine(str(path), threads=threads)
    check = prove_parity(
        lambda inputs: next(wanted),
        graph.infer,
        parent.signature,
        parent.profile,
        sample,
        atol=atol,
        advance=lambda done, total: step.advance(done, total, "shapes proven"),
    )
    padding = prove_padding(graph.infer, parent, sample, atol=atol)
    graph.close()
    return (check, *padding)


def in_slices(infer: Infer, inputs: Arrays) -> Arrays:
    """Eager's answer for a large batch, a few rows at a time with their padding: rows do not read one another.

    At once, most of the time goes into pages for activations of a hundred megabytes, fetched anew at each layer.
    """
    rows, width = next(iter(inputs.values())).shape
    size = max(1, SLICE_TOKENS // width)
    parts = [infer({name: array[i : i + size] for name, array in inputs.items()}) for i in range(0, rows, size)]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _sampler(parent: Artifact, ref: ModelRef) -> Any:
    return lambda batch, sequence, **kind: sample_inputs(
        ref, parent.tokenizer, batch, sequence, vocabulary=ref.vocabulary, **kind
    )
