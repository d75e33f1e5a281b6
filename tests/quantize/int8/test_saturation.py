"""8-bit products against exact integers, as this CPU's instructions really run them."""

from __future__ import annotations

import platform

import pytest

from trimaran.core.instructions import probe
from trimaran.core.isolation import Worker
from trimaran.quantize.int8.saturation import largest_weight, wrong_products


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
def test_the_weights_that_are_chosen_multiply_exactly(backend: str) -> None:
    assert wrong_products(backend, largest_weight(backend)) == 0


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
def test_with_vnni_all_eight_bits_are_used(backend: str) -> None:
    vnni = {row.name for row in probe() if row.executes} & {"avx512_vnni", "avx_vnni", "amx_int8"}
    if not vnni:
        pytest.skip("this CPU has no VNNI instructions")
    assert largest_weight(backend) == 127


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="AVX2 is an instruction set of x86-64")
def test_without_vnni_the_saturation_is_seen_and_weights_get_seven_bits() -> None:
    environment = {"ONEDNN_MAX_CPU_ISA": "AVX2"}
    with Worker(environment=environment) as worker:
        assert worker.call(largest_weight, 60.0, backend="openvino") == 63
