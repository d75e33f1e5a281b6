"""A BiLSTM learns a transformer's answers, and its folder is located, exported and proven like any model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import answers
from tests.commands import trimaran_here
from tests.export import zoo
from tests.export.exported import LONG, answering, exported
from tests.shrink.test_layers import LARGE, TEXTS, Killed, sentence_model, texts_file
from trimaran.core.bilstm_config import CONFIG, WEIGHTS, BiLstmConfig
from trimaran.core.errors import IntegrityError, UsageError
from trimaran.core.progress import SilentProgress
from trimaran.export.locate import locate
from trimaran.export.wrappers import complete_module
from trimaran.pipeline.distilled_report import DISTILLED_REPORT, DistilledReport
from trimaran.pipeline.shrink_bilstm import SETTINGS, shrink_to_bilstm
from trimaran.pipeline.shrink_layers import shrink_layers
from trimaran.shrink import training
from trimaran.shrink.bilstm import principal_parts

QUICK = SETTINGS.model_copy(update={"epochs": 6, "sequence": 24})


def taught(model: Path, folder: Path, name: str = "student", **options: Any) -> DistilledReport:
    given = {"settings": QUICK, "progress": SilentProgress(), **options}
    return shrink_to_bilstm(str(model), [texts_file(folder)], folder / name, **given)


def small_student() -> Any:
    import torch

    from trimaran.core.bilstm import BiLstm

    torch.manual_seed(0)
    return BiLstm(BiLstmConfig(task="embedding", vocabulary=50, width=6, table=8, hidden=4, dense=5)).eval()


def test_padding_and_neighbours_change_no_answer_of_a_bilstm() -> None:
    import torch

    student = small_student()
    ids = torch.tensor([[3, 4, 5, 6], [7, 8, 0, 0]])
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    with torch.inference_mode():
        together, alone = student(ids, mask)[1], student(ids[1:, :2], mask[1:, :2])[0]
        padded, empty = student(ids[1:], mask[1:])[0], student(ids[1:], 0 * mask[1:])[0]
    torch.testing.assert_close(together, alone, atol=1e-6, rtol=0)
    torch.testing.assert_close(padded, alone, atol=1e-6, rtol=0)
    assert torch.isfinite(empty).all()


def test_a_token_table_keeps_its_largest_components_and_a_narrow_one_is_filled_with_zeros() -> None:
    import torch

    generator = torch.Generator().manual_seed(0)
    table = torch.randn(40, 6, generator=generator) * torch.tensor([9.0, 0.1, 5.0, 0.1, 0.1, 0.1])
    parts = principal_parts(table, 2)
    distances = torch.cdist(parts, parts).flatten()
    kept = torch.cdist(table[:, [0, 2]], table[:, [0, 2]]).flatten()
    assert torch.corrcoef(torch.stack([distances, kept]))[0, 1] > 0.999
    assert principal_parts(table, 9)[:, 6:].abs().max() == 0


@pytest.mark.slow
def test_a_bilstm_learns_vectors_and_its_graph_answers_as_it_does(tmp_path: Path) -> None:
    import torch

    teacher = sentence_model(tmp_path)
    report = taught(teacher, tmp_path)
    assert (report.student, report.layers) == ("bilstm", ())
    assert report.distance_after < 0.9 * report.distance_before
    assert DistilledReport.read(tmp_path / "student" / DISTILLED_REPORT) == report
    assert "as a BiLSTM" in (tmp_path / "student" / "README.md").read_text(encoding="utf-8")
    assert not list(tmp_path.glob(".*")), "nothing half-made is left"
    ref = locate(str(tmp_path / "student"))
    assert (ref.task, ref.width, ref.default_sequence) == ("embedding", 16, 64)
    assert ref.prompts == locate(str(teacher)).prompts != {}
    graph = exported(ref, tmp_path, profile=LONG)
    assert [check.name for check in graph.checks][1] == "max |Δ| by more padding", "it does not read padding"
    served, module = answering(graph), complete_module(ref, attention="eager")
    texts = list(TEXTS[:5])
    for vector, text in zip(answers.embeddings(served, texts), texts, strict=True):
        inputs = served.encoder.batch(served.encoder.rows([text]))
        with torch.inference_mode():
            wanted = module(*(torch.from_numpy(array) for array in inputs.values()))[0].numpy()
        np.testing.assert_allclose(vector, wanted, atol=1e-5)
        assert abs(np.linalg.norm(wanted) - 1) < 1e-5, "unit length, as the teacher's"


@pytest.mark.slow
def test_a_killed_bilstm_run_is_resumed_and_ends_as_one_that_was_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from safetensors.numpy import load_file

    monkeypatch.setattr(training, "SAVED_EVERY_S", 0.0)
    zoo.saved_model(tmp_path / "model", "bert", "embedding", num_hidden_layers=1)
    whole = taught(tmp_path / "model", tmp_path, "whole")
    with pytest.raises(KeyboardInterrupt):
        taught(tmp_path / "model", tmp_path, "killed", progress=Killed())
    resumed = taught(tmp_path / "model", tmp_path, "killed", resume=True)
    assert resumed.steps == whole.steps
    weights = [load_file(tmp_path / name / WEIGHTS) for name in ("whole", "killed")]
    for name, value in weights[0].items():
        np.testing.assert_allclose(weights[1][name], value, atol=1e-3, err_msg=name)


def test_a_classifier_becomes_a_bilstm_with_its_labels_and_the_next_command_is_printed(tmp_path: Path) -> None:
    zoo.saved_model(tmp_path / "model", "bert", "text-classification", num_hidden_layers=1, **LARGE)
    student = tmp_path / "my student"
    options = ("--texts", texts_file(tmp_path), "--epochs", 1, "--budget", "5m")
    ended = trimaran_here(
        "shrink", tmp_path / "model", "-o", student, "--to", "bilstm", *options, home=tmp_path / "home", cwd=tmp_path
    )
    assert ended.returncode == 4, ended.stderr
    assert "1 layers became a BiLSTM" in ended.stdout
    assert f"Next: trimaran deploy -m '{student}'" in ended.stdout
    ref = locate(str(student))
    assert (ref.task, ref.labels) == ("text-classification", zoo.TASK_LABELS["text-classification"])
    with pytest.raises(UsageError, match="cannot do embedding"):
        locate(str(student), task_name="embedding")
    with pytest.raises(UsageError, match="finished answers"):
        locate(str(student), pooling_changes={"mode": "max"})
    with pytest.raises(UsageError, match="a model without layers"):
        shrink_layers(str(student), [], tmp_path / "smaller", layers=1, progress=SilentProgress())


def test_damaged_weights_and_models_that_cannot_teach_are_refused(tmp_path: Path) -> None:
    from trimaran.core.bilstm import read_bilstm, write_bilstm

    write_bilstm(small_student(), tmp_path / "student")
    config = BiLstmConfig.read(tmp_path / "student" / CONFIG)
    (tmp_path / "student" / CONFIG).write_text(config.model_copy(update={"hidden": 5}).to_json())
    with pytest.raises(IntegrityError, match="does not hold the weights"):
        read_bilstm(tmp_path / "student")
    (tmp_path / "student" / WEIGHTS).write_bytes(b"damaged")
    with pytest.raises(IntegrityError, match="does not hold the weights"):
        read_bilstm(tmp_path / "student")
    zoo.saved_model(tmp_path / "masked", "bert", "fill-mask")
    with pytest.raises(UsageError, match="cannot teach a BiLSTM: it is a bert for fill-mask"):
        taught(tmp_path / "masked", tmp_path)
