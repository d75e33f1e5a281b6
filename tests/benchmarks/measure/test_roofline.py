from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from trimaran.benchmarks.measure.products import MatrixProduct
from trimaran.benchmarks.measure.roofline import GAP_S, GPUS, Gpu, KernelReceipt, expect

LINEAR = MatrixProduct(count=6, batch=1, rows=4096, inner=384, columns=1536, weights=True)
SCORES = MatrixProduct(count=6, batch=384, rows=128, inner=32, columns=128, weights=False)
SLOW_MEMORY = Gpu(name="narrow", compute_capability="0", half_per_s=1e18, int8_per_s=1e18, bytes_per_s=1e9)
SLOW_CORES = Gpu(name="weak", compute_capability="0", half_per_s=1e9, int8_per_s=2e9, bytes_per_s=1e18)
HALF = KernelReceipt(kernels=20, products={"Half": 6}, fused_attentions={"Half": 6})
INT8 = KernelReceipt(kernels=20, products={"Int8": 6}, fused_attentions={"Half": 6})


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "benchmarks"))
    for name in ("gpu_roofline", "export_cost"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return import_module("gpu_roofline")


def test_a_kernel_takes_the_longer_of_arithmetic_and_memory() -> None:
    weak = expect([LINEAR], HALF, SLOW_CORES)
    assert weak.products_s == pytest.approx(LINEAR.operations / 1e9)
    narrow = expect([LINEAR], HALF, SLOW_MEMORY)
    moved = 6 * 2 * (4096 * 384 + 384 * 1536 + 4096 * 1536)
    assert narrow.products_s == pytest.approx(moved / 1e9)


def test_int8_halves_what_arithmetic_bounds_and_leaves_attention_as_the_receipt_says() -> None:
    half, int8 = (expect([LINEAR, SCORES], receipt, SLOW_CORES) for receipt in (HALF, INT8))
    assert int8.products_s == pytest.approx(half.products_s / 2)
    assert int8.attention_s == pytest.approx(half.attention_s)


def test_scores_of_a_fused_attention_never_leave_the_chip() -> None:
    apart = KernelReceipt(kernels=20, products={"Half": 18}, fused_attentions={})
    assert (
        expect([LINEAR, SCORES], HALF, SLOW_MEMORY).attention_s
        < expect([LINEAR, SCORES], apart, SLOW_MEMORY).attention_s
    )


def test_every_kernel_costs_a_gap() -> None:
    assert expect([LINEAR], HALF, GPUS[0]).gaps_s == pytest.approx(20 * GAP_S)
    assert KernelReceipt.of({**HALF.model_dump(), "compute_capability": "8.6"}).pointwise == 8


def test_the_page_is_made_from_the_committed_receipts_and_says_that_nothing_was_measured(script: ModuleType) -> None:
    result = json.loads(script.RESULT.read_text(encoding="utf-8"))
    page = script.page(result)
    assert script.PAGE.read_text(encoding="utf-8") == page, "run `python benchmarks/gpu_roofline.py --page`"
    assert "**Nothing on this page was measured on a GPU.**" in page
    assert {row["gpu"] for row in result["rows"]} >= {"T4", "A10", "L4", "H100 SXM"}
    assert all(f"| {published[0]} | {published[2]} | {published[3]} |" in page for published in script.PUBLISHED)
    assert all(row["receipt"]["kernels"] > 0 for row in result["rows"])
