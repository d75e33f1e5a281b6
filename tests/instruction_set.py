"""Makes engines run inside the pytest process on a CPU that advertises instructions it cannot execute.

On such a CPU (AMX under some hypervisors), oneDNN kernels die of SIGILL. The product runs engines in child processes
and retries with fewer instructions. Tests that open an engine in their own process would take pytest down with it.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os

from trimaran.core import isolation
from trimaran.quantize.int8.saturation import largest_weight

# What the probe found, as JSON. Workers of pytest-xdist inherit it and do not probe again.
FOUND = "TRIMARAN_TESTS_RESTRICTION"


def restrict_this_process() -> None:
    """Set the first restriction that runs for this process only. Call it before an engine is imported.

    The variable is set in C's environment, where oneDNN reads it, and not in `os.environ`. Commands and children of
    the product are started with `os.environ`, so they still meet the CPU as it is.
    """
    if FOUND not in os.environ:
        os.environ[FOUND] = json.dumps(_restriction())
    for name, value in json.loads(os.environ[FOUND]).items():
        os.environ.pop(name, None)  # inherited when pytest-xdist started this worker
        ctypes.CDLL(None).setenv(name.encode(), value.encode(), 1)


def _restriction() -> dict[str, str]:
    if importlib.util.find_spec("openvino") is None:
        return {}

    def attempt(restriction: dict[str, str]) -> None:
        with isolation.Worker(environment=restriction) as worker:
            worker.call(largest_weight, 120.0, backend="openvino")

    _, restriction = isolation.first_restriction_that_runs(attempt)
    return restriction
