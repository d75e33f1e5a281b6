from __future__ import annotations

import json
import os
import subprocess
import sys

from tests.commands import ROOT
from tests.instruction_set import FOUND
from trimaran.quantize.int8.saturation import NARROW, WIDE, largest_weight

RESTRICTED = """
import ctypes, json, os
from pathlib import Path
from tests.commands import environment
from tests.instruction_set import restrict_this_process
from trimaran.core import isolation

restrict_this_process()
name = "ONEDNN_MAX_CPU_ISA"
getenv = ctypes.CDLL(None).getenv
getenv.restype = ctypes.c_char_p
child = isolation.run(os.getenv, 60.0, key=name)
print(json.dumps([getenv(name.encode()).decode(), child, environment(Path("home")).get(name)]))
"""


def test_an_engine_runs_inside_the_test_process() -> None:
    assert largest_weight("openvino") in (NARROW, WIDE)


def test_the_restriction_is_inherited_by_workers_of_pytest_but_not_by_the_product() -> None:
    variables = {FOUND: json.dumps({"ONEDNN_MAX_CPU_ISA": "AVX2"}), "ONEDNN_MAX_CPU_ISA": "AVX2"}
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-c", RESTRICTED],
        env={**os.environ, **variables, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["AVX2", None, None]
