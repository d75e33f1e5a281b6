"""A long text is cut where the model's own library cuts it, and what is assumed of a model is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import answers
from tests.export import zoo
from tests.export.exported import answering, exported, reference_of
from trimaran.core.config import DeployConfig
from trimaran.core.corpus import shipped_texts
from trimaran.core.spec import ModelRef, Range
from trimaran.export.locate import locate
from trimaran.judging.final_answers import final_answers
from trimaran.pipeline.assumptions import assumptions

SMALL_BATCH = Range(minimum=1, typical=1, maximum=2)
LONG_TEXT = " ".join(shipped_texts("judging")[:40])


def sentence_folder(root: Path, *, limit: int, positions: int = 512) -> Any:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Normalize, Pooling, Transformer

    zoo.saved_model(root / "plain", "bert", "embedding", max_position_embeddings=positions)
    modules = [Transformer(str(root / "plain")), Pooling(32, pooling_mode="mean"), Normalize()]
    model = SentenceTransformer(modules=modules, device="cpu")
    model.max_seq_length = limit
    model.save(str(root / "sentence"))
    return model


def edit(path: Path, **changes: Any) -> None:
    config = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    path.write_text(json.dumps({**config, **changes}), encoding="utf-8")


def planned(folder: Path, **settings: Any) -> tuple[DeployConfig, ModelRef]:
    config = DeployConfig(model=str(folder), batch=SMALL_BATCH, **settings)
    return config, locate(str(folder), task_name=config.task)


def notes_of(folder: Path, **settings: Any) -> tuple[str, ...]:
    config, ref = planned(folder, **settings)
    return assumptions(config, ref, config.profile_for(ref))


@pytest.mark.usefixtures("workers_here")
def test_a_sentence_folder_is_cut_where_sentence_transformers_cuts_it(tmp_path: Path) -> None:
    model = sentence_folder(tmp_path, limit=64)
    assert "max_seq_length" not in json.loads((tmp_path / "sentence" / "sentence_bert_config.json").read_text())
    config, ref = planned(tmp_path / "sentence")
    profile = config.profile_for(ref)
    assert profile.sequence == Range(minimum=1, typical=64, maximum=64)
    wanted = model.encode([LONG_TEXT])
    eager = final_answers(reference_of(ref, tmp_path, profile=profile), [{"TEXT": LONG_TEXT}], threads=1)
    np.testing.assert_allclose(eager["EMBEDDING"], wanted, atol=1e-5)
    graph = answering(exported(ref, tmp_path, profile=profile))
    np.testing.assert_allclose(answers.embeddings(graph, [LONG_TEXT])[0], wanted[0], atol=1e-5)
    assert assumptions(config, ref, profile) == ()


@pytest.mark.parametrize("name", ["sentence_bert_config.json", "sentence_roberta_config.json"])
@pytest.mark.parametrize(
    "stated", [{"max_seq_length": 48}, {"max_seq_length": 96, "tokenizer_args": {"model_max_length": 48}}]
)
def test_the_config_of_older_versions_comes_before_the_tokenizer(
    tmp_path: Path, name: str, stated: dict[str, Any]
) -> None:
    from sentence_transformers import SentenceTransformer

    sentence_folder(tmp_path, limit=64)
    folder = tmp_path / "sentence"
    (folder / "sentence_bert_config.json").unlink()
    edit(folder / name, **stated)
    assert locate(str(folder)).default_sequence == SentenceTransformer(str(folder)).max_seq_length == 48


@pytest.mark.parametrize("unlimited", [int(1e30), None])
def test_a_tokenizer_without_a_limit_leaves_the_positions(tmp_path: Path, unlimited: int | None) -> None:
    from sentence_transformers import SentenceTransformer

    sentence_folder(tmp_path, limit=64, positions=128)
    folder = tmp_path / "sentence"
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    del config["model_max_length"]
    given = config if unlimited is None else {**config, "model_max_length": unlimited}
    (folder / "tokenizer_config.json").write_text(json.dumps(given), encoding="utf-8")
    assert locate(str(folder)).default_sequence == SentenceTransformer(str(folder)).max_seq_length == 128


def test_a_plain_classifier_reads_as_much_as_the_pipeline(tmp_path: Path) -> None:
    import transformers

    folder = zoo.saved_model(tmp_path / "model", "bert", "text-classification", max_position_embeddings=512)
    edit(folder / "tokenizer_config.json", model_max_length=512)
    config, ref = planned(folder)
    profile = config.profile_for(ref)
    assert profile.sequence == Range(minimum=1, typical=128, maximum=512)
    served = answering(exported(ref, tmp_path, profile=profile))
    words = LONG_TEXT.split()
    text = next(
        " ".join(words[:count])
        for count in range(len(words))
        if len(served.encoder.rows([" ".join(words[:count])])[0].ids) >= 400
    )
    pipeline = transformers.pipeline("text-classification", model=str(folder), truncation=True, top_k=None)
    for asked in (text, LONG_TEXT):
        wanted = {row["label"]: row["score"] for row in pipeline([asked])[0]}
        found = {row["label"]: row["score"] for row in answers.classes(served, [asked])[0]}
        assert found == pytest.approx(wanted, abs=1e-5)


def test_positions_that_no_token_can_use_do_not_count(tmp_path: Path) -> None:
    folder = zoo.saved_model(tmp_path / "model", "roberta", "text-classification", max_position_embeddings=130)
    assert locate(str(folder)).default_sequence == 128


def test_a_model_that_reads_thousands_of_tokens_is_deployed_for_512_and_it_is_said(tmp_path: Path) -> None:
    folder = zoo.saved_model(tmp_path / "model", "modernbert", "text-classification", max_position_embeddings=8192)
    config, ref = planned(folder)
    assert config.profile_for(ref).sequence.maximum == 512
    assert notes_of(folder) == (
        "The model reads up to 8192 tokens; it is deployed for 512, and longer texts are cut; --sequence changes it.",
    )
    assert notes_of(folder, sequence=(1, 128, 8192)) == ()


def test_a_shorter_or_longer_sequence_than_the_models_is_said(tmp_path: Path) -> None:
    folder = zoo.saved_model(tmp_path / "model", "bert", "text-classification", max_position_embeddings=512)
    assert notes_of(folder) == ()
    assert notes_of(folder, sequence=(1, 64, 128)) == (
        "Texts longer than 128 tokens are cut, although the model reads up to 512; --sequence changes it.",
    )
    edit(folder / "tokenizer_config.json", model_max_length=256)
    assert notes_of(folder, sequence=(1, 64, 512)) == (
        "Texts are read up to 512 tokens, although the model's own library cuts them at 256; --sequence changes it.",
    )


def test_a_model_without_any_limit_has_a_stated_default(tmp_path: Path) -> None:
    folder = zoo.saved_model(tmp_path / "model", "xlnet", "text-classification")
    config, ref = planned(folder)
    assert (ref.default_sequence, config.profile_for(ref).sequence.maximum) == (None, 256)
    assert notes_of(folder) == (
        "No file of the model says how many tokens it reads: it is deployed for 256, and longer texts are cut; "
        "--sequence changes it.",
    )


def test_an_assumed_pooling_is_said_until_it_is_asked_for(tmp_path: Path) -> None:
    folder = zoo.saved_model(tmp_path / "model", "bert", "embedding")
    assert notes_of(folder) == (
        "The model does not say how its vectors are made: mean pooling and vectors of unit length are assumed; "
        "--pooling and --no-normalize change it.",
    )
    assert "mean pooling" not in notes_of(folder, pooling="mean")[0]
    assert notes_of(folder, pooling="mean", normalize=True) == ()
