"""Environments whose packages are all named have the versions of constraints.txt."""

from __future__ import annotations

import pytest

from tests.environments import ROOT

# botocore wants python-dateutil before 3.
OTHERS = {"s3": {"python-dateutil"}, "ray-serve": set[str]()}


@pytest.mark.parametrize("name", OTHERS)
def test_pinned_environments_have_the_versions_of_the_constraints(name: str) -> None:
    def pins(path: str) -> dict[str, str]:
        lines = (ROOT / path).read_text().splitlines()
        return dict(line.split("==") for line in lines if "==" in line and not line.startswith("#"))

    ours, there = pins("constraints.txt"), pins(f"tests/environments/{name}.txt")
    assert {package for package in there if there[package] != ours.get(package, there[package])} == OTHERS[name]
    assert len(there.keys() & ours.keys()) > 40
