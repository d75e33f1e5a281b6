"""A student keeps the layers that matter most, learns its teacher's answers, and is an ordinary model folder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.commands import trimaran_here
from tests.export import zoo
from trimaran.core.corpus import shipped_texts
from trimaran.core.errors import UsageError
from trimaran.core.progress import SilentProgress, Step
from trimaran.core.tasks import task
from trimaran.export.locate import locate
from trimaran.pipeline import shrink_layers as pipeline
from trimaran.pipeline.distilled_report import DISTILLED_REPORT, DistilledReport
from trimaran.pipeline.shrink_layers import shrink_layers
from trimaran.pipeline.teacher import load_teacher
from trimaran.runtime.text import Row
from trimaran.shrink import teaching, training
from trimaran.shrink.batches import by_length, shuffled
from trimaran.shrink.layers import NoLayerList, choose_layers, learnt_layers, trials_of, with_layers
from trimaran.shrink.teaching import Runner, layers_that_fit
from trimaran.shrink.training import LearningSettings, Training

TEXTS = shipped_texts("calibration")[:160]
SETTINGS = LearningSettings(epochs=4, learning_rate=3e-3, sequence=24)
SHORT = SETTINGS.model_copy(update={"epochs": 1})
# Weights so large that every layer matters.
LARGE = {"initializer_range": 0.3}


def texts_file(folder: Path, texts: tuple[str, ...] = TEXTS) -> Path:
    path = folder / "texts.txt"
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return path


def sentence_model(root: Path) -> Path:
    """A sentence-transformers folder: four layers, mean, a Dense layer in a folder of its own, unit length."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer

    zoo.saved_model(root / "plain", "bert", "embedding", num_hidden_layers=4, **LARGE)
    modules = [
        Transformer(str(root / "plain"), max_seq_length=64),
        Pooling(32, pooling_mode="mean"),
        Dense(32, 16),
        Normalize(),
    ]
    SentenceTransformer(modules=modules, device="cpu", prompts={"query": "find: "}).save(str(root / "sentence"))
    return root / "sentence"


def shrunk(model: Path, folder: Path, name: str = "student", **options: Any) -> DistilledReport:
    given = {"layers": 2, "settings": SETTINGS, "progress": SilentProgress(), **options}
    return shrink_layers(str(model), [texts_file(folder)], folder / name, **given)


def test_the_layers_whose_absence_moves_answers_least_are_left_out() -> None:
    weights = (5.0, 1.0, 3.0, 2.0, 4.0)
    asked: list[tuple[int, ...]] = []

    def distance(kept: tuple[int, ...]) -> float:
        asked.append(kept)
        return sum(weight for layer, weight in enumerate(weights) if layer not in kept)

    assert choose_layers(5, 2, distance) == (0, 4)
    assert len(asked) == trials_of(5, 2)
    assert choose_layers(5, 2, distance, fixed=frozenset({1})) == (0, 1)


def test_every_layer_of_a_student_learns_a_layer_of_its_teacher_and_the_last_one_learns_the_last() -> None:
    assert learnt_layers(6, 3) == (1, 3, 5)
    assert learnt_layers(12, 5) == (1, 3, 6, 8, 11)
    assert learnt_layers(4, 1) == (3,)


def test_token_vectors_of_all_layers_are_kept_or_of_the_last_or_none_as_far_as_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [Row((1, 2, 3), (0, 0, 0)), Row((1,), (0,))]
    a_layer = 4 * 32 * 2
    for room, kept in ((3 * a_layer, (1, 3, 5)), (3 * a_layer - 1, (5,)), (a_layer - 1, ())):
        monkeypatch.setattr(teaching, "_MOST_STATE_BYTES", room)
        assert layers_that_fit((1, 3, 5), rows, 32) == kept
    assert layers_that_fit((), rows, 32) == (), "a BiLSTM has no layers"


def test_noted_layers_give_the_token_vectors_of_transformers_without_padding(tmp_path: Path) -> None:
    import torch

    model = zoo.saved_model(tmp_path / "model", "bert", "embedding", num_hidden_layers=3)
    teacher = load_teacher(locate(str(model)), task("embedding"), tmp_path, seed=0)
    rows = teacher.tokenised(["the cat sat on the mat", "the dog"])
    runner = Runner(teacher.runner.module, teacher.runner.encoder, noted=(0, 2))
    states = runner(rows).states
    assert states is not None
    wanted = []
    for row in rows:
        ids = torch.tensor([row.ids])
        with torch.inference_mode():
            layers = runner.model(ids, output_hidden_states=True).hidden_states
        wanted.append(torch.stack([layers[1][0], layers[3][0]], dim=1))
    torch.testing.assert_close(states, torch.cat(wanted), atol=1e-5, rtol=0)


def test_every_text_is_in_one_batch_of_like_lengths_and_the_seed_decides_which() -> None:
    lengths = [3 + (7 * index) % 50 for index in range(500)]
    for batches in (by_length(lengths), shuffled(lengths, (0, 1))):
        assert sorted(index for batch in batches for index in batch) == list(range(500))
        assert max(len(batch) * max(lengths[index] for index in batch) for batch in batches) <= 2048
    assert shuffled(lengths, (0, 1)) == shuffled(lengths, (0, 1)) != shuffled(lengths, (0, 2))


@pytest.mark.parametrize("family", ["bert", "t5", "modernbert", "gemma3_text"])
def test_a_model_with_fewer_layers_is_saved_and_read_as_it_answers(tmp_path: Path, family: str) -> None:
    import torch
    import transformers

    changes: dict[str, Any] = {"num_layers" if family == "t5" else "num_hidden_layers": 3}
    if family == "gemma3_text":
        changes["layer_types"] = ["sliding_attention", "sliding_attention", "full_attention"]
    zoo.saved_model(tmp_path / "model", family, "embedding", **changes)
    whole = torch.nn.Module()
    loader = transformers.T5EncoderModel if family == "t5" else transformers.AutoModel
    whole.model = loader.from_pretrained(tmp_path / "model", attn_implementation="eager").eval()
    smaller: Any = with_layers(whole, (0, 2)).model
    smaller.save_pretrained(tmp_path / "smaller")
    read = loader.from_pretrained(tmp_path / "smaller", attn_implementation="eager").eval()
    ids = {"input_ids": torch.arange(5, 25).unsqueeze(0), "attention_mask": torch.ones(1, 20, dtype=torch.int64)}
    with torch.inference_mode():
        wanted, found, before = (each(**ids).last_hidden_state for each in (smaller, read, whole.model))
    assert torch.allclose(wanted, found, atol=1e-5)
    assert not torch.allclose(wanted, before, atol=1e-2), "a layer is missing"
    assert read.config.num_hidden_layers == 2


@pytest.mark.slow
def test_a_student_learns_and_is_a_folder_that_sentence_transformers_and_deploy_take(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    folder = sentence_model(tmp_path)
    report = shrunk(folder, tmp_path)
    assert len(report.layers) == 2
    assert report.distance_after < 0.9 * report.distance_before
    assert report.bytes_after < report.bytes_before
    assert {check.name for check in report.checks} >= {"mean_cosine_distance", "rank_correlation"}
    assert [kind.kind for kind in report.kinds] == ["texts"]
    assert DistilledReport.read(tmp_path / "student" / DISTILLED_REPORT) == report
    assert "with 2 of its 4 layers" in (tmp_path / "student" / "README.md").read_text(encoding="utf-8")
    assert locate(str(tmp_path / "student")).layers == 2
    teacher, student = (SentenceTransformer(str(path), device="cpu") for path in (folder, tmp_path / "student"))
    assert student.prompts["query"] == "find: "
    vectors = [model.encode(list(TEXTS[:20])) for model in (teacher, student)]
    assert vectors[1].shape == (20, 16), "the Dense layer is kept"
    assert not list(tmp_path.glob(".*")), "nothing half-made is left"


class Killed(SilentProgress):
    """Ends the run at the third step of a stage, as a kill does; `None` ends it where the stage begins."""

    def __init__(self, stage: str = "learn", at: int | None = 3) -> None:
        self._stage, self._at = stage, at

    @contextlib.contextmanager
    def stage(self, title: str) -> Iterator[Step]:
        with super().stage(title) as step:
            if title == self._stage:
                step.advance = self._advance  # type: ignore[method-assign]
                if self._at is None:
                    raise KeyboardInterrupt
            yield step

    def _advance(self, done: int, total: int | None, what: str = "") -> None:
        assert self._stage != "learn" or ("loss" in what and "left" in what)
        if done == self._at:
            raise KeyboardInterrupt


@pytest.mark.slow
def test_a_killed_run_is_resumed_and_ends_as_one_that_was_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from safetensors.numpy import load_file

    monkeypatch.setattr(training, "SAVED_EVERY_S", 0.0)
    zoo.saved_model(tmp_path / "model", "bert", "embedding", num_hidden_layers=3)
    whole = shrunk(tmp_path / "model", tmp_path, "whole")
    with pytest.raises(KeyboardInterrupt):
        shrunk(tmp_path / "model", tmp_path, "killed", progress=Killed())
    assert not (tmp_path / "killed").exists()
    with pytest.raises(UsageError, match="did not finish"):
        shrunk(tmp_path / "model", tmp_path, "killed")
    other = SETTINGS.model_copy(update={"seed": 5})
    with pytest.raises(UsageError, match="other settings"):
        shrunk(tmp_path / "model", tmp_path, "killed", resume=True, settings=other)
    resumed = shrunk(tmp_path / "model", tmp_path, "killed", resume=True)
    assert (resumed.layers, resumed.steps) == (whole.layers, whole.steps)
    weights = [load_file(tmp_path / name / "model.safetensors") for name in ("whole", "killed")]
    for name, value in weights[0].items():
        np.testing.assert_allclose(weights[1][name], value, atol=1e-4, err_msg=name)


def test_a_run_killed_between_trials_of_layers_repeats_none_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[int, ...]] = []

    def noted(module: Any, kept: Any) -> Any:
        made.append(tuple(kept))
        return with_layers(module, kept)

    monkeypatch.setattr(pipeline, "with_layers", noted)
    zoo.saved_model(tmp_path / "model", "bert", "embedding", num_hidden_layers=3, **LARGE)
    with pytest.raises(KeyboardInterrupt):
        shrunk(tmp_path / "model", tmp_path, progress=Killed("layers"), settings=SHORT)
    assert made == [(1, 2), (0, 2)], "the third trial was about to begin"
    made.clear()
    report = shrunk(tmp_path / "model", tmp_path, resume=True, settings=SHORT)
    assert made == [(0, 1), report.layers], "one trial was left, then the student begins"


def test_a_run_killed_after_its_last_step_learns_no_step_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zoo.saved_model(tmp_path / "model", "bert", "embedding", num_hidden_layers=2, **LARGE)
    with pytest.raises(KeyboardInterrupt):
        shrunk(tmp_path / "model", tmp_path, layers=1, progress=Killed("write", None), settings=SHORT)

    def learnt_again(training: Training, batch: Any) -> float:
        raise AssertionError("a step was repeated")

    monkeypatch.setattr(Training, "_learn", learnt_again)
    report = shrunk(tmp_path / "model", tmp_path, layers=1, resume=True, settings=SHORT)
    assert report.steps > 0 and report.distance_after < report.distance_before


def test_learning_stops_where_held_out_texts_get_no_better(tmp_path: Path) -> None:
    zoo.saved_model(tmp_path / "model", "bert", "embedding", num_hidden_layers=2, **LARGE)
    nothing_moves = SETTINGS.model_copy(update={"learning_rate": 1e-30, "patience": 2, "epochs": 100})
    report = shrunk(tmp_path / "model", tmp_path, layers=1, settings=nothing_moves)
    assert report.epochs < 5, "two evaluations without progress ended it"
    assert report.distance_after == report.distance_before


def test_a_classifier_learns_soft_targets_and_labels_and_a_script_is_told_what_is_not_proven(tmp_path: Path) -> None:
    zoo.saved_model(tmp_path / "model", "bert", "text-classification", num_hidden_layers=3)
    labels = zoo.TASK_LABELS["text-classification"]
    table = tmp_path / "labelled.jsonl"
    rows = [f'{{"text": "word{index} is {labels[index % 3]}", "label": "{labels[index % 3]}"}}' for index in range(80)]
    table.write_text("\n".join(rows), encoding="utf-8")
    student = tmp_path / "student"
    words = ("shrink", tmp_path / "model", "-o", student, "--layers", 1, "--texts", table, "--label-weight", 0.3)
    options = ("--epochs", 2, "--budget", "5m", "--data", table, "--metric", "accuracy")
    ended = trimaran_here(*words, *options, home=tmp_path / "home", cwd=tmp_path)
    assert ended.returncode == 4, ended.stderr
    assert "not keep the level `distilled`" in ended.stdout
    assert "80 labelled items accuracy" in ended.stdout
    assert locate(str(student)).labels == labels


def test_what_cannot_be_shrunk_is_refused_before_any_work(tmp_path: Path) -> None:
    zoo.saved_model(tmp_path / "model", "bert", "embedding", num_hidden_layers=3)
    with pytest.raises(UsageError, match="3 layers, so 3 cannot stay"):
        shrunk(tmp_path / "model", tmp_path, layers=3)
    with pytest.raises(UsageError, match="different texts"):
        shrink_layers(
            str(tmp_path / "model"), [texts_file(tmp_path, TEXTS[:20])], tmp_path / "student", layers=2,
            progress=SilentProgress(),
        )  # fmt: skip
    zoo.saved_model(tmp_path / "masked", "bert", "fill-mask")
    with pytest.raises(UsageError, match="a model for fill-mask"):
        shrunk(tmp_path / "masked", tmp_path, layers=1)
    zoo.saved_model(tmp_path / "shared", "albert", "embedding")
    with pytest.raises(NoLayerList, match="0 lists of 4 layers"):
        shrunk(tmp_path / "shared", tmp_path, "small")
