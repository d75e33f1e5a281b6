"""Levers of the engine, each beside the same artifact without it.

    python benchmarks/levers.py ARTIFACT -o result.json [--only NAME ...]

One process each, interleaved rounds, ratios with their intervals; and what the lever does to the answers, because a
faster engine that answers otherwise is another candidate. Where the time goes by kind of node is printed too, for
OpenVINO: what takes no time is not worth a lever.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiment import finish, options, undisturbed

from trimaran.benchmarks.measure.quiet import DELAY_LIMIT
from trimaran.benchmarks.measure.runner import Effort, RaceEntry, measure
from trimaran.benchmarks.report.figures import speedups
from trimaran.core.artifact import Artifact, load_artifact
from trimaran.core.corpus import shipped_texts
from trimaran.core.environment import usable_cores
from trimaran.core.isolation import Worker
from trimaran.core.pinning import cores_for
from trimaran.core.progress import Step, progress_for
from trimaran.core.samples import Shape
from trimaran.core.store import Store, default_home
from trimaran.core.tasks import task
from trimaran.judging.probe_process import ProbeProcess
from trimaran.judging.quality import reference_answers
from trimaran.judging.stats import separated

BASE = "as it is"
SHAPES = tuple(Shape(batch=batch, sequence=sequence) for batch, sequence in ((1, 16), (1, 128), (32, 128)))
EFFORT = Effort(rounds=9, minimum_rounds=6, budget_s=60.0, delay_limit=DELAY_LIMIT)
DEADLINE_S = 600.0


@dataclass(frozen=True)
class Lever:
    """`options` are the engine's, `environment` its process's; `static` fixes the shape in the graph."""

    name: str
    backend: str
    options: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    static: bool = False
    flag: str = ""


LEVERS = (
    Lever("bf16 where it is float", "openvino", {"INFERENCE_PRECISION_HINT": "bf16"}, flag="avx512_bf16"),
    Lever("threads pinned", "openvino", {"ENABLE_CPU_PINNING": True}),
    Lever("hint throughput", "openvino", {"PERFORMANCE_HINT": "THROUGHPUT"}),
    Lever("weights not mapped", "openvino", {"ENABLE_MMAP": False}),
    Lever("kernels of 128 shapes kept", "openvino", {"CPU_RUNTIME_CACHE_CAPACITY": 128},
          {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "128"}),
    Lever("static shape", "openvino", static=True),
    Lever("denormals as zero", "openvino", {"CPU_DENORMALS_OPTIMIZATION": True}),
    Lever("huge pages", "openvino", environment={"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}),
    Lever("threads do not spin", "onnxruntime", {"session.intra_op.allow_spinning": "0"}),
    Lever("denormals as zero", "onnxruntime", {"session.set_denormal_as_zero": "1"}),
    Lever("weights not packed", "onnxruntime", {"session.disable_prepacking": "1"}),
    Lever("huge pages", "onnxruntime", environment={"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}),
)  # fmt: skip


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("artifact", help="name or digest in the store, or a folder")
    parser.add_argument("--only", nargs="+", help="levers by name")
    parser.add_argument("--texts", type=int, default=100, help="judging texts that the answers are compared on")
    parser.add_argument("--quick", action="store_true", help="one short round: a trial of the script, no result")
    asked = parser.parse_args()
    artifact = Store(default_home() / "store").open(asked.artifact)
    levers = [lever for lever in levers_for(artifact) if asked.only is None or lever.name in asked.only]
    effort = Effort(rounds=1, minimum_rounds=1, losing_rounds=1, minimum_time_s=0.0) if asked.quick else EFFORT
    progress = progress_for(sys.stderr)
    with tempfile.TemporaryDirectory(prefix="trimaran-levers-") as scratch:
        with progress.stage("race") as step:
            times = [ratio for shape in SHAPES for ratio in raced(artifact, levers, shape, effort, Path(scratch), step)]
        with progress.stage("answers"):
            answers = changes(artifact, levers, asked.texts)
    nodes = {str(shape): by_kind(artifact, shape) for shape in SHAPES} if artifact.backend == "openvino" else {}
    result = {
        "artifact": artifact.digest,
        "candidate": artifact.recipe.step,
        "threads": usable_cores(),
        "ratios": times,
        "answers": answers,
        "time_by_kind_of_node": nodes,
    }
    finish(result, asked.output)


def levers_for(artifact: Artifact) -> list[Lever]:
    """Those of the artifact's engine that this CPU can do."""
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8").split() if Path("/proc/cpuinfo").is_file() else []
    return [lever for lever in LEVERS if lever.backend == artifact.backend and (not lever.flag or lever.flag in flags)]


def raced(
    artifact: Artifact, levers: Sequence[Lever], shape: Shape, effort: Effort, scratch: Path, step: Step
) -> list[dict[str, Any]]:
    """Time without the lever over time with it, at one shape."""
    threads, cores = usable_cores(), cores_for(usable_cores())
    entries = [RaceEntry(BASE, artifact)]
    for lever in levers:
        used = with_static_shape(artifact, shape, scratch / str(shape)) if lever.static else artifact
        entries.append(RaceEntry(lever.name, used, environment=lever.environment, options=lever.options))
    found = measure(
        entries,
        (shape,),
        threads=threads,
        cores=cores,
        effort=effort,
        step=step,
        open_probe=lambda entry: ProbeProcess(
            entry.artifact,
            threads=threads,
            environment=entry.environment,
            deadline_s=DEADLINE_S,
            cores=cores,
            options=entry.options,
            verify=False,
        ),
    )
    undisturbed(found)

    rows = []
    for entry in entries[1:]:
        if failure := found.outcome(entry.name).failure:
            print(f"{entry.name} at {shape}: {failure}", file=sys.stderr)
            continue
        ratio = speedups(found.measurements, entry.name, reference=BASE)[shape]
        rows.append({"lever": entry.name, "shape": str(shape), "ratio": ratio.median, "low": ratio.low,
                     "high": ratio.high, "is": separated(ratio)})  # fmt: skip
    return rows


def with_static_shape(artifact: Artifact, shape: Shape, folder: Path) -> Artifact:
    """A copy whose graph takes this shape only; written in a child, as all that loads an engine's library."""
    shutil.copytree(artifact.directory, folder)
    with Worker(environment=_here()) as worker:
        path = str(folder / artifact.entry)
        worker.call(fix_shape, DEADLINE_S, path=path, batch=shape.batch, sequence=shape.sequence)
    return load_artifact(folder, verify=False)


def fix_shape(path: str, batch: int, sequence: int) -> None:
    import openvino as ov

    model = ov.Core().read_model(path)
    model.reshape({node.get_any_name(): [batch, sequence] for node in model.inputs})
    changed = Path(path).with_name("static.xml")
    ov.save_model(model, changed, compress_to_fp16=False)
    del model
    changed.replace(path)
    changed.with_suffix(".bin").replace(Path(path).with_suffix(".bin"))


def changes(artifact: Artifact, levers: Sequence[Lever], texts: int) -> dict[str, dict[str, float]]:
    """How far the answers with each lever are from those without; a fixed shape takes no texts."""
    judging, threads = shipped_texts("judging")[:texts], usable_cores()
    plain = reference_answers(artifact, judging, threads=threads)
    found = {}
    for lever in levers:
        if not lever.static:
            with ProbeProcess(
                artifact, threads=threads, environment=lever.environment, options=lever.options, deadline_s=DEADLINE_S
            ) as probe:
                found[lever.name] = task(artifact.task).fidelity(plain, probe.answers(judging, "alone"))
    return found


def by_kind(artifact: Artifact, shape: Shape) -> dict[str, float]:
    """Share of an OpenVINO engine's time by kind of node, the largest first."""
    with Worker(environment=_here()) as worker:
        return worker.call(
            node_times, DEADLINE_S, directory=str(artifact.directory), batch=shape.batch, sequence=shape.sequence
        )


def node_times(directory: str, batch: int, sequence: int) -> dict[str, float]:
    import numpy as np
    import openvino as ov

    artifact = load_artifact(Path(directory))
    settings = {"INFERENCE_NUM_THREADS": usable_cores(), "INFERENCE_PRECISION_HINT": "f32", "PERF_COUNT": True}
    compiled = ov.Core().compile_model(str(artifact.entry_path), "CPU", settings | artifact.engine_options)
    request = compiled.create_infer_request()
    inputs = {node.get_any_name(): np.ones((batch, sequence), np.int64) for node in compiled.inputs}
    spent: Counter[str] = Counter()
    for turn in range(6):
        request.infer(inputs)
        for node in request.get_profiling_info() if turn else ():
            spent[f"{node.node_type} {node.exec_type}"] += node.real_time.total_seconds()
    total = sum(spent.values())
    return {kind: seconds / total for kind, seconds in spent.most_common() if seconds > 0}


def _here() -> dict[str, str]:
    """Children find this file by its name."""
    paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(paths)}


if __name__ == "__main__":
    main()
