"""Writes docs/families.md from the tables: `python -m trimaran.export.families_page`."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trimaran.core.choices import Level
from trimaran.core.families import FAMILIES, MODULE, REFUSED, STATIC, Family
from trimaran.core.tasks import LEVELS, TASKS
from trimaran.export.heads import has_head

PAGE = Path("docs/families.md")
# What `python benchmarks/tensorrt_families.py` wrote; it lies in the clone, as this page does.
TENSORRT_RESULT = Path(__file__).parents[2] / "benchmarks" / "results" / "tensorrt-families.json"

_HEAD = """# Families and tasks

Generated from `trimaran/core/families.py` and `trimaran/core/tasks.py` by
`python -m trimaran.export.families_page`; a test compares the two.

A ✓ is a cell that the tests in `tests/export/` prove on a tiny seeded model with a trained tokenizer of the family's
kind:

- **numbers** (`test_every_family.py`): the graph differs from eager PyTorch by at most 1e-5 at the corners of the
  profile, with uneven lengths. More padding changes nothing beyond 1e-5. A text alone equals the same text in a batch.
  ONNX's checker and shape inference are clean, and the fused nodes below are found.
- **text** (`test_answers.py`, `test_embedding.py`): from text to answer the graph gives what transformers' pipelines,
  sentence-transformers or plain eager PyTorch give, word for word and to 1e-5, on English, Chinese, emoji and empty
  text. Pairs are laid out as the family was trained with them (`test_pairs.py`).
- **weights** (`test_weights.py`): each is stored once, and no node is left that depends on weights only. One exception:
  the transposed table of a masked-LM head that is tied to its embeddings would be stored twice.

Every graph is traced with eager attention (`traced_attention` in the manifest), whatever the config asks for: ONNX
Runtime's fusions know that form, and both forms compute the same. Ids, masks and segments are int64, as tokenizers give
them. `int64_operators` of a manifest counts what is computed in int64 beyond shapes: positions and masks, once for each
text, and nothing in the layers.

A family that was built after another one is tested with one task for each of its heads (numbers), and with its
tokenizer's ids, pairs and embeddings (text). Its other ✓ are tasks with the same heads.

A – is a head that transformers does not have for the family, or one that cannot be exported because it reads a decoder
or padding.
"""

# The graphs in TensorRT's types, and their columns.
_GRAPHS = {"onnx-fp16": "FP16", "onnx-int8-qdq": "INT8"}
_TENSORRT = """## TensorRT

Made from `benchmarks/results/tensorrt-families.json`, which `python benchmarks/tensorrt_families.py` writes. A tiny
seeded embedding model of each family, with heads of 16, was exported and its graphs were made in TensorRT's types.
The real parser read them, and {builder} built each for the compute capabilities {targets}.

A cell is the receipt: the kernels of the plan that the builder's own table shows, for the target with the fewest. Bold
is what falls short of the graph's promise, with the cause. `static` is a table without products, and `module` is
whatever it holds: both are left out.
"""
# Why the builder's table falls short of a family's graph, as that table shows it.
_CAUSES = {"modernbert": "the builder splits the joint product of Q, K and V into three, and runs them in Half"}


def families_page() -> str:
    parts = [
        _HEAD,
        "## Cells\n",
        _cells(),
        "## Families\n",
        _families(),
        "## Tasks\n",
        _tasks(),
        _refused(),
        _tensorrt(),
    ]
    return "\n".join(parts)


def _cells() -> str:
    rows = [
        [f"`{name}`", *("✓" if has_head(name, row.model_class) else "–" for row in TASKS.values())] for name in FAMILIES
    ]
    return _table(["family", *TASKS], rows)


def _families() -> str:
    rows = [
        [
            f"`{row.name}`",
            ", ".join(row.inputs).replace("_ids", ""),
            _positions(row),
            f"{row.exporter}, opset {row.opset}",
            _fusions(row),
            "; ".join(filter(None, (f"built after `{row.after}`" if row.after else "", row.note))),
        ]
        for row in (*FAMILIES.values(), STATIC, MODULE)
    ]
    return _table(["family", "inputs", "positions", "exporter", "fused nodes in n layers", "remark"], rows)


def _tasks() -> str:
    rows = [
        [
            f"`{row.name}`",
            row.describe,
            row.in_graph or "the encoder",
            row.on_server or "nothing",
            "<br>".join(_gates(name, level) for level in LEVELS),
        ]
        for name, row in TASKS.items()
    ]
    return _table(["task", "gives", "in the graph", "on the server", "gates"], rows)


def _gates(task: str, level: Level) -> str:
    gates = TASKS[task].gates[level]
    return f"{level}: " + ", ".join(f"{gate.metric} {gate.comparison} {gate.limit:g}" for gate in gates)


def _positions(row: Family) -> str:
    if row.relative_positions:
        return "relative"
    if row.longest:
        return "as long as its attention is full"
    return f"the table less {row.reserved_positions}" if row.reserved_positions else "the table"


def _fusions(row: Family) -> str:
    """`2n` SkipLayerNormalization, and so on."""
    words = []
    for name, (once, each) in row.fused.items():
        many = {0: "", 1: "n"}.get(each, f"{each}n")
        count = f"{many}{once:+d}" if many and once else many or str(once)
        words.append(f"{count} {name}")
    return ", ".join(words) or "none expected"


def _refused() -> str:
    rows = [[f"`{name}`", reason] for name, reason in REFUSED.items()]
    return "## Refused\n\n" + _table(["family", "why"], rows)


def _tensorrt() -> str:
    result = json.loads(TENSORRT_RESULT.read_text(encoding="utf-8"))
    rows = [
        [
            f"`{name}`",
            *(_built(name, result["families"].get(name, {}).get(graph), result["targets"]) for graph in _GRAPHS),
        ]
        for name in FAMILIES
    ]
    intro = _TENSORRT.format(builder=result["builder"].replace("_", "-"), targets=", ".join(result["targets"]))
    return intro + "\n" + _table(["family", *_GRAPHS.values()], rows)


def _built(family: str, row: Mapping[str, Any] | None, targets: list[str]) -> str:
    """One cell: the receipt, with what falls short of the graph's promise first; or why there is no plan."""
    if row is None:
        return "not tried"
    if row["built"] != targets:
        where = f"built for {', '.join(row['built'])} only" if row["built"] else "not built"
        return f"{where}: {row['reason']}".replace("|", "/").replace("\n", " ")
    checks = [(check["name"], check["observed"], check["limit"]) for check in row["receipt"] if check["limit"]]
    cause = f" ({_CAUSES[family]})" if family in _CAUSES else ""
    short = [f"**{observed} of {limit} {name}**{cause}" for name, observed, limit in checks if observed < limit]
    return "; ".join([*short, *(f"{observed} {name}" for name, observed, limit in checks if observed >= limit)])


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main() -> int:
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(families_page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
