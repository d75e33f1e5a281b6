"""A loaded embedding model in the place of a `SentenceTransformer`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trimaran
from tests.export.exported import LONG, exported
from tests.export.test_prompts import PROMPTS, sentence_folder
from trimaran.core.errors import UsageError
from trimaran.core.small_vectors import RANGES, ranges_from_text
from trimaran.core.whole_texts import pieces_by
from trimaran.export.locate import locate

TEXTS = ["A man is eating food.", "A man eats a piece of bread.", "The girl carries a baby.", "Two men push carts."]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """sentence-transformers' own model, and ours made from its folder."""
    root = tmp_path_factory.mktemp("drop-in")
    theirs = sentence_folder(root, prompts=PROMPTS, default_prompt_name="clustering")
    artifact = exported(locate(str(root / "sentence")), root, profile=LONG)
    return theirs, trimaran.load(artifact.directory, store=root / "store", threads=1)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"prompt_name": "query"},
        {"prompt": "some other words: "},
        {"normalize_embeddings": True, "truncate_dim": 8},
        {"convert_to_tensor": True},
        {"convert_to_numpy": False},
        {"precision": "ubinary"},
        {"batch_size": 2, "show_progress_bar": True, "device": "cpu"},
    ],
    ids=str,
)
def test_encode_gives_what_sentence_transformers_gives(both: tuple[Any, Any], options: dict[str, Any]) -> None:
    theirs, ours = both
    for texts in (TEXTS, TEXTS[0], tuple(TEXTS[:2]), np.array(TEXTS), []):
        wanted, found = theirs.encode(texts, **options), ours.encode(texts, **options)
        assert type(found) is type(wanted)
        for one, other in zip(np.atleast_2d(wanted), np.atleast_2d(found), strict=True):
            np.testing.assert_allclose(np.asarray(other), np.asarray(one), atol=1e-5)


@pytest.mark.parametrize("width", [None, 8])
def test_eight_bit_vectors_have_the_ranges_of_the_manifest(both: tuple[Any, Any], width: int | None) -> None:
    from sentence_transformers.util import quantize_embeddings

    theirs, ours = both
    ranges = ranges_from_text(ours.manifest.details[RANGES])[:, :width]
    wanted = quantize_embeddings(theirs.encode(TEXTS)[:, :width], precision="int8", ranges=ranges)
    found = ours.encode(TEXTS, precision="int8", truncate_dim=width)
    # Float noise may move a number to the next of 256 steps.
    assert found.dtype == np.int8 and np.abs(found.astype(int) - wanted).max() <= 1
    np.testing.assert_array_equal(ours.encode(TEXTS[0], precision="int8", truncate_dim=width), found[0])


def test_a_too_long_text_can_be_joined_from_pieces_that_are_read_whole(both: tuple[Any, Any]) -> None:
    _, ours = both
    words = [f"boat{number}" for number in range(100)]
    long = " ".join(words)
    whole = pieces_by(lambda texts: ours._cut(texts, None, None), [long], "windows")
    pieces = [piece.text for piece in whole.read]
    assert len(pieces) > 1 and "".join(sorted(pieces, key=long.index)).split() == long.split()
    counted = ours.truncated
    vectors = ours.encode(pieces)
    mean = np.average(vectors, axis=0, weights=[len(piece) for piece in pieces])
    found = ours.encode([long, words[0]], overflow="windows")
    assert ours.truncated == counted
    np.testing.assert_allclose(found[0], mean / np.linalg.norm(mean), atol=1e-5)
    np.testing.assert_array_equal(found[1], ours.encode(words[0]))
    largest = ours.encode(long, overflow="windows-max")
    np.testing.assert_allclose(largest, vectors.max(0) / np.linalg.norm(vectors.max(0)), atol=1e-5)
    with pytest.raises(UsageError, match="not for pairs"):
        ours.encode([("one", "two")], overflow="windows")


def test_queries_and_documents_take_their_own_prompts(both: tuple[Any, Any]) -> None:
    theirs, ours = both
    np.testing.assert_allclose(ours.encode_query(TEXTS), theirs.encode_query(TEXTS), atol=1e-5)
    np.testing.assert_allclose(ours.encode_document(TEXTS), theirs.encode_document(TEXTS), atol=1e-5)
    np.testing.assert_array_equal(ours.encode(TEXTS, prompt="query"), ours.encode(TEXTS, prompt_name="query"))
    with pytest.raises(UsageError, match="Unknown prompt 'nothing'"):
        ours.encode(TEXTS, prompt_name="nothing")


def test_its_facts_are_those_of_sentence_transformers(both: tuple[Any, Any]) -> None:
    theirs, ours = both
    for model in both:
        with model.truncate_embeddings(8):
            assert model.get_embedding_dimension() == 8
    assert ours.get_sentence_embedding_dimension() == theirs.get_embedding_dimension()
    assert ours.max_seq_length == ours.get_max_seq_length() == theirs.max_seq_length
    assert ours.prompts == theirs.prompts
    assert ours.default_prompt_name == theirs.default_prompt_name
    assert ours.device == theirs.device


@pytest.mark.parametrize("name", ["cosine", "dot", "euclidean", "manhattan"])
def test_similarities_are_those_of_sentence_transformers(both: tuple[Any, Any], name: str) -> None:
    vectors = both[0].encode(TEXTS)
    wanted, found = [], []
    for model, into in zip(both, (wanted, found), strict=True):
        model.similarity_fn_name = name
        into += [model.similarity(vectors, vectors[:2]), model.similarity(vectors[0], vectors)]
        into += [model.similarity_pairwise(vectors[:2], vectors[2:])]
    for one, other in zip(wanted, found, strict=True):
        np.testing.assert_allclose(other.numpy(), one.numpy(), atol=1e-5)


def test_evaluators_of_sentence_transformers_take_it(both: tuple[Any, Any]) -> None:
    from sentence_transformers.sentence_transformer.evaluation import (
        EmbeddingSimilarityEvaluator,
        InformationRetrievalEvaluator,
    )

    retrieval = InformationRetrievalEvaluator(
        queries={"q": "bread"},
        corpus={str(index): text for index, text in enumerate(TEXTS)},
        relevant_docs={"q": {"1"}},
        name="few",
        write_csv=False,
    )
    pairs = EmbeddingSimilarityEvaluator(TEXTS[:3], TEXTS[1:], [0.9, 0.1, 0.2], write_csv=False)
    for evaluator in (retrieval, pairs):
        wanted, found = (evaluator(model) for model in both)
        assert found == pytest.approx(wanted, abs=1e-5)
    assert both[1].model_card_data.metrics["few"]


def test_utilities_of_sentence_transformers_take_it(both: tuple[Any, Any]) -> None:
    from sentence_transformers import util

    mined = [util.paraphrase_mining(model, TEXTS) for model in both]
    assert [pair[1:] for pair in mined[1]] == [pair[1:] for pair in mined[0]]
    found = [
        util.semantic_search(model.encode(["bread"], convert_to_tensor=True), model.encode(TEXTS), top_k=2)
        for model in both
    ]
    assert [hit["corpus_id"] for hit in found[1][0]] == [hit["corpus_id"] for hit in found[0][0]]


def test_texts_may_have_the_name_that_older_code_gives_them(both: tuple[Any, Any]) -> None:
    for method in ("encode", "encode_query", "encode_document"):
        by_name, plain = (getattr(both[1], method)(**{name: TEXTS}) for name in ("sentences", "inputs"))
        np.testing.assert_array_equal(by_name, plain)
    with pytest.raises(UsageError, match="wants texts"):
        both[1].encode()


def test_what_it_cannot_do_is_refused(both: tuple[Any, Any]) -> None:
    ours = both[1]
    with pytest.raises(UsageError, match="Leave out pool"):
        ours.encode(TEXTS, pool={"processes": []})
    with pytest.raises(UsageError, match="not on cuda"):
        ours.encode(TEXTS, device="cuda:0")
    with pytest.raises(UsageError, match="feature-extraction"):
        ours.encode(TEXTS, output_value="token_embeddings")
    with pytest.raises(UsageError, match="found int"):
        ours.encode([1, 2])


def test_a_path_is_taken_as_well_as_a_string(both: tuple[Any, Any]) -> None:
    assert trimaran.load(Path(both[1].manifest.directory)).manifest.digest == both[1].manifest.digest
