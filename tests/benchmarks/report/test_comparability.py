from __future__ import annotations

import pytest

from tests.benchmarks.fakes import usual_report
from trimaran.benchmarks.report.comparability import require_alike, unlike
from trimaran.benchmarks.report.report import Report
from trimaran.core.errors import UsageError


def elsewhere(**changes: object) -> Report:
    report = usual_report()
    return report.model_copy(update={"environment": report.environment.model_copy(update=changes)})


def test_reports_of_one_machine_are_alike() -> None:
    assert require_alike([usual_report(), usual_report()]) == ()


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (elsewhere(cpu="Another"), "cpu: A <fast> CPU and Another"),
        (elsewhere(libraries={"openvino": "2027.1"}), "openvino: absent and 2027.1"),
        (elsewhere(memory_bytes=2**34), "memory: 8 GiB and 16 GiB"),
        (usual_report().model_copy(update={"threads": 8}), "threads: 2 and 8"),
        (usual_report().model_copy(update={"cores": (0, 1)}), "pinned cores: none and 0, 1"),
    ],
)
def test_unlike_conditions_are_refused_by_name_unless_asked_for(other: Report, words: str) -> None:
    with pytest.raises(UsageError, match="not measured under like conditions") as refused:
        require_alike([usual_report(), other])
    assert words in str(refused.value)
    assert [str(one) for one in require_alike([usual_report(), other], allow_unlike=True)] == [words]


def test_a_few_reserved_bytes_are_not_another_machine() -> None:
    assert unlike(usual_report(), elsewhere(memory_bytes=2**33 - 40_000_000)) == ()
