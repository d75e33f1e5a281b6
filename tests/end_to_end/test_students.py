"""A BiLSTM student is deployed as any model, and with its teacher beside it: proven, or refused in words."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from tests.commands import trimaran_here, trimaran_json_here
from tests.export.zoo import TASK_LABELS, saved_model
from tests.shrink.test_layers import LARGE, texts_file
from tests.texts import judging_pairs
from trimaran import load
from trimaran.benchmarks.report.report import CandidateRow
from trimaran.benchmarks.report.report_files import read_report

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.usefixtures("workers_here")]


class Students(NamedTuple):
    folder: Path
    home: Path
    teacher: Path
    student: Path

    def deploy(self, name: str, *options: object) -> tuple[object, ...]:
        return (
            "deploy", "-m", self.student, "--name", name, "--report", self.folder / name, "--no-serve-check",
            "--candidates", "onnxruntime-fp32", "--quick", "--judging", self.folder / "judging.jsonl", *options,
        )  # fmt: skip

    def candidate(self, name: str) -> CandidateRow:
        rows = read_report(self.folder / name).candidates
        return next(row for row in rows if row.name == "onnxruntime-fp32")


@pytest.fixture(scope="module")
def students(tmp_path_factory: pytest.TempPathFactory) -> Students:
    folder = tmp_path_factory.mktemp("students")
    judging_pairs(folder / "judging.jsonl")
    teacher, student, home = folder / "teacher", folder / "student", folder / "home"
    saved_model(teacher, "bert", "text-classification", num_hidden_layers=1, **LARGE)
    taught = trimaran_here(
        "shrink", teacher, "-o", student, "--to", "bilstm", "--texts", texts_file(folder), "--epochs", 1,
        home=home, cwd=folder,
    )  # fmt: skip
    assert taught.returncode == 4, "one epoch is far too short, which the deployment with its teacher must find"
    return Students(folder, home, teacher, student)


def test_a_bilstm_held_against_what_it_answers_itself_is_proven_and_loads(students: Students) -> None:
    said = trimaran_json_here(
        *students.deploy("proven", "--teacher", students.student), home=students.home, cwd=students.folder
    )
    candidate = students.candidate("proven")
    assert candidate.quality is not None
    assert candidate.quality.metrics["teacher_label_agreement"] == 1
    checks = {check.name: check.verdict for check in candidate.quality.checks}
    assert checks["teacher_label_agreement"] == checks["teacher_mean_probability_change"] == "proven"
    assert said["winner"] == "onnxruntime-fp32"
    with load(students.folder / "model_repository" / "proven") as model:
        [answer] = model.classify(["A fine day."], top_k=None)
    assert {row["label"] for row in answer} == set(TASK_LABELS["text-classification"])
    assert sum(row["score"] for row in answer) == pytest.approx(1)


def test_a_student_that_left_its_teacher_is_not_deployed_and_the_gate_is_named(students: Students) -> None:
    ended = trimaran_here(
        *students.deploy("left", "--teacher", students.teacher), home=students.home, cwd=students.folder
    )
    assert ended.returncode == 4, ended.stderr
    candidate = students.candidate("left")
    assert candidate.verdict == "rejected"
    assert "to the teacher" in candidate.reason
    assert not (students.folder / "model_repository" / "left").exists()
