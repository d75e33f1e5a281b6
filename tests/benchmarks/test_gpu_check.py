"""`make gpu-check`: what it makes of the tests that ran on the GPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.benchmarks.scripts import scripts_in

ROOT = Path(__file__).parents[2]
with scripts_in(ROOT / "benchmarks", ("experiment", "gpu_check")) as scripts:
    gpu_check = scripts.gpu_check


def test_a_skipped_test_is_not_counted_as_passed(tmp_path: Path) -> None:
    (tmp_path / "test_on_gpu.py").write_text(
        "import pytest\n"
        "def test_kept(): pass\n"
        "def test_broken(): assert False\n"
        "def test_without(): pytest.skip('no GPU of this kind')\n"
    )
    listing = tmp_path / "tests.xml"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--junitxml={listing}", str(tmp_path)]
    subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    assert gpu_check.outcomes(listing) == {
        "test_kept": "passed",
        "test_broken": "failed",
        "test_without": "skipped: no GPU of this kind",
    }
    assert gpu_check.outcomes(tmp_path / "absent.xml") == {}, "pytest did not get so far"


def test_the_tests_that_deploy_are_the_ones_it_waits_for() -> None:
    source = (ROOT / "tests" / "end_to_end" / "test_gpu.py").read_text(encoding="utf-8")
    for name in gpu_check.DEPLOYED.values():
        test, _, parameter = name.partition("[")
        assert f"def {test}(" in source and f'"{parameter.rstrip("]")}"' in source
