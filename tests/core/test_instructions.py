from __future__ import annotations

import platform

import pytest

from trimaran.core.instructions import Instruction, _probe, probe


@pytest.mark.skipif(platform.machine() != "x86_64", reason="machine code of x86-64")
def test_instructions_are_executed_not_believed() -> None:
    undefined = Instruction("ud2", "ud2", "0f0b", "the instruction that is defined to be undefined")
    found = _probe(undefined, advertised=True)
    assert (found.executes, found.detail, found.trap) == (False, "SIGILL", True)
    assert _probe(Instruction("nop", "nop", "90", "nothing"), advertised=True).executes


def test_every_row_gets_a_verdict_and_the_parent_lives() -> None:
    for row in probe():
        assert row.executes == (row.detail == "runs")
