"""A look inside a model shows what its library computes, and where its engine differs from it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.commands import trimaran_json
from tests.export import zoo
from tests.pipeline.look.conftest import OTHERS, TEXTS
from tests.quantize.tensorrt.engines import World
from trimaran.core.errors import IntegrityError, UsageError
from trimaran.core.progress import SilentProgress
from trimaran.pipeline.look.look import Look, look
from trimaran.pipeline.look.neighbours import NEAREST, neighbours
from trimaran.pipeline.look.page import render_look


def look_at(model: Path | str, *texts: str, **options: Any) -> Look:
    return look(str(model), texts, threads=1, progress=SilentProgress(), **options)


def test_attention_and_token_vectors_are_those_of_transformers(seen: Look) -> None:
    import torch
    from transformers import AutoModel, AutoTokenizer

    folder = seen.subject.ref.directory
    model = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    inputs = AutoTokenizer.from_pretrained(folder)(TEXTS[0], return_tensors="pt")
    with torch.inference_mode():
        wanted = model(**inputs, output_attentions=True, output_hidden_states=True)
    reading = seen.readings[0]
    assert reading.attention is not None
    np.testing.assert_allclose(reading.attention, torch.cat(wanted.attentions).numpy(), atol=1e-6)
    np.testing.assert_allclose(reading.states, torch.cat(wanted.hidden_states).numpy(), atol=1e-5)
    np.testing.assert_allclose(reading.attention.sum(axis=-1), 1.0, atol=1e-5)
    assert reading.tokens[0] == "[CLS]"


def test_shares_of_the_pooled_vector_are_one_together_and_are_those_of_its_summands(seen: Look) -> None:
    reading = seen.readings[0]
    assert reading.shares is not None
    assert seen.subject.ref.pooling is not None
    assert seen.subject.ref.pooling.mode == "mean"
    summands = reading.states[-1] / len(reading.tokens)
    pooled = summands.sum(axis=0)
    np.testing.assert_allclose(reading.shares, summands @ pooled / (pooled @ pooled), rtol=1e-4)
    assert reading.shares.sum() == pytest.approx(1.0)
    assert reading.moved is not None
    assert (reading.moved > 0).any()
    assert len(reading.moved) == len(reading.tokens)


@pytest.mark.parametrize("name", ["openvino-fp32", "onnxruntime-fp32"])
def test_every_layer_of_a_float_engine_is_found_and_equals_eager(world: World, name: str) -> None:
    engine = world.graph("bert", name)
    [reading] = look_at(engine.directory, TEXTS[0], store=world.store.root).engine
    assert reading.differences is not None
    assert reading.differences.max() < 1e-4, "each layer was found: another tensor would be far away"
    assert reading.moved < 1e-6


def test_int8_differs_by_layer_and_token(seen: Look) -> None:
    differences = seen.engine[0].differences
    assert differences is not None
    assert differences.shape == (seen.subject.ref.layers + 1, len(seen.readings[0].tokens))
    assert 1e-5 < np.nanmax(differences) < 0.5
    assert 0 < seen.engine[0].moved < 0.1


def test_neighbours_are_ranked_before_and_after() -> None:
    texts = [f"text {index}" for index in range(NEAREST + 2)]
    angles = np.linspace(0, 1, len(texts))
    before = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    after = before.copy()
    after[[0, 1]] = after[[1, 0]]
    query = np.array([1.0, 0.0])
    rows = neighbours(texts, (query, before), (query, after))
    assert [(row.text, row.rank_before, row.rank_after) for row in rows[:3]] == [
        ("text 0", 1, 2), ("text 1", 2, 1), ("text 2", 3, 3),
    ]  # fmt: skip
    assert len(rows) == NEAREST
    assert rows[0].similarity_before == pytest.approx(1.0)
    alone = neighbours(texts[:3], (query, before[:3]))
    assert [row.rank_before for row in alone] == [1, 2, 3]
    assert alone[0].similarity_after is None


def test_neighbours_come_from_the_given_texts(seen: Look) -> None:
    assert {row.text for rows in seen.neighbours for row in rows} <= set(OTHERS)
    assert seen.texts == len(OTHERS)


def test_the_page_loads_nothing_and_no_text_leaves_its_place(seen: Look) -> None:
    page = render_look(seen)
    assert not re.search(r"""(src|href)\s*=|url\(|https?://(?!www\.w3\.org)""", page), "nothing is loaded"
    assert "<b>dog</b>" not in page
    assert "&lt;b&gt;dog&lt;/b&gt;" in page
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])  # type: ignore[index]
    assert data["readings"][1]["tokens"] == list(seen.readings[1].tokens)


def test_models_that_read_pairs_get_both_texts_at_once_and_labels_move_without_a_token(tmp_path: Path) -> None:
    zoo.saved_model(tmp_path / "model", "bert", "rerank", num_labels=1)
    [reading] = look_at(tmp_path / "model", *TEXTS, task_name="rerank").readings
    assert reading.tokens.count("[SEP]") == 2
    assert reading.shares is None
    assert reading.moved is not None
    with pytest.raises(UsageError, match="reads two texts together, found 1"):
        look_at(tmp_path / "model", TEXTS[0], task_name="rerank")


def test_what_cannot_be_looked_at_is_refused_in_words(
    world: World, seen: Look, tmp_path: Path, texts_file: Path
) -> None:
    engine = seen.subject.engine
    assert engine is not None
    with pytest.raises(UsageError, match="One text or two are wanted, none of them empty"):
        look_at(engine.directory, "a", "b", "c")
    with pytest.raises(UsageError, match=r"Neither a model of .* is called 'absent'"):
        look_at("absent", "a", store=tmp_path / "store")
    with pytest.raises(UsageError, match=r"The trained model of .* is not known"):
        look_at(engine.directory, "a", store=tmp_path / "store")
    named = look_at(engine.directory, TEXTS[0], store=tmp_path / "store", trained=seen.subject.ref.directory)
    assert named.engine[0].moved == pytest.approx(seen.engine[0].moved, rel=0.01)
    zoo.saved_model(tmp_path / "classifier", "bert", "text-classification")
    with pytest.raises(UsageError, match="is a model for text-classification"):
        look_at(tmp_path / "classifier", "a", text_file=texts_file)
    with pytest.raises(UsageError, match="query"):
        look_at(tmp_path / "classifier", "a", prompt="query")


def test_a_trained_model_that_has_changed_is_noticed(tmp_path: Path) -> None:
    own = World(tmp_path)
    artifact = own.exported("bert")
    zoo.saved_model(tmp_path / f"bert-{artifact.task}", "bert", artifact.task, seed=1, num_attention_heads=2)
    with pytest.raises(IntegrityError, match="has changed since it was deployed"):
        look_at(artifact.directory, "a", store=own.store.root)


def test_long_texts_are_cut_and_the_page_says_so(seen: Look) -> None:
    short = look_at(seen.subject.ref.directory, "the cat and the dog and the road", most_tokens=6)
    assert short.readings[0].cut
    assert len(short.readings[0].tokens) == 6
    assert "cut at 6" in render_look(short)
    assert short.engine == []


def test_the_command_writes_one_file(seen: Look, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    printed = trimaran_json("look", seen.subject.ref.directory, TEXTS[0], "-o", str(page), home=tmp_path / "home")
    assert printed["page"] == str(page)
    assert printed["readings"][0]["tokens"] == list(seen.readings[0].tokens)
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["page.html"]
