"""Fixtures that several folders share, and how tests are shared out among processes.

Tests that share a costly fixture stay together, and long ones go first.
"""

from __future__ import annotations

import compileall
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from xdist.scheduler import LoadScopeScheduling

import trimaran
from tests.instruction_set import restrict_this_process
from tests.workers import workers_in_this_process
from trimaran.core.config import BUSY_OK_VARIABLE
from trimaran.core.families import FAMILIES

if TYPE_CHECKING:
    from tests.quantize.tensorrt.engines import World

restrict_this_process()
# Tests run beside one another, so what they measure is never measured on a quiet machine.
os.environ.setdefault(BUSY_OK_VARIABLE, "1")
# Threads of PyTorch and NumPy that wait for one another sleep. By default they spin, and take the cores from the other
# tests (docs/decisions/0300). Libraries read this when they are loaded, and child processes inherit it.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")

# Files whose tests share a server or a deployed model, or look for processes that others of them start. Elsewhere the
# tests of one file stay together.
TOGETHER = (
    ("tests/end_to_end/test_callers.py", "tests/end_to_end/test_minilm.py"),
    ("tests/serving/gateway/", "tests/serving/triton/test_every_task.py"),
    ("tests/bulk/test_ray",),
)
# Files that share the exported models of a family: the tests of one family stay together, whichever file they are in.
BY_FAMILY = tuple(f"tests/export/test_{name}.py" for name in ("every_family", "answers", "weights"))
# Folders with long groups go first, then all others, then the exports. Those of a family come last: they are many short
# groups, which fill the processes evenly in the end.
LONGEST_FIRST = tuple(
    f"tests/{name}/"
    for name in ("end_to_end", "rehearsal", "containers", "serving", "pipeline", "quantize", "attacks", "bulk")
)
LAST = "tests/export/"


@pytest.fixture(scope="session")
def triton() -> None:
    """The tests that need it run the real Triton; where there is none they say why they did not."""
    from trimaran.serving.triton import installation

    if reason := installation.why_not():
        pytest.skip(reason)


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Tiny encoders and what is made of them, each once for all tests of a session."""
    from tests.quantize.tensorrt.engines import World

    return World(tmp_path_factory.mktemp("engines"))


@pytest.fixture
def workers_here() -> Iterator[None]:
    """Children of the product run in this process: `tests/workers.py` says when that is right."""
    with workers_in_this_process():
        yield


class ByGroup(LoadScopeScheduling):
    """Groups by the name of a test: xdist 3.8's own groups are written where pytest 9.2 no longer looks for them."""

    def _split_scope(self, nodeid: str) -> str:
        if is_of_a_family(nodeid):
            return f"exports of {family_of(nodeid)}"
        return next((group[0] for group in TOGETHER if nodeid.startswith(group)), nodeid.partition("::")[0])


def is_of_a_family(nodeid: str) -> bool:
    return nodeid.startswith(BY_FAMILY) and bool(family_of(nodeid))


def family_of(nodeid: str) -> str:
    """The model family among the parameters of a test, such as `test_x[xlm-roberta-rerank]`; else nothing."""
    parameters = nodeid.partition("[")[2].removesuffix("]")
    longest_first = sorted(FAMILIES, key=len, reverse=True)
    return next((name for name in longest_first if f"-{name}-" in f"-{parameters}-"), "")


def pytest_configure(config: pytest.Config) -> None:
    """Compile the package once. Where PYTHONDONTWRITEBYTECODE is set, each of the many children would do it again."""
    if not hasattr(config, "workerinput"):
        compileall.compile_dir(Path(trimaran.__file__).parent, quiet=2)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Three processes for two cores: tests of servers wait half of their time, and another test uses the CPU then."""
    cores = len(os.sched_getaffinity(0))
    return cores + cores // 2


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByGroup:
    return ByGroup(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: rank_of(item.nodeid))


def rank_of(nodeid: str) -> int:
    """Where a test stands in the order: `sort` keeps the order of those with the same rank."""
    if nodeid.startswith(LAST):
        return len(LONGEST_FIRST) + (2 if is_of_a_family(nodeid) else 1)
    return next((rank for rank, folder in enumerate(LONGEST_FIRST) if nodeid.startswith(folder)), len(LONGEST_FIRST))
