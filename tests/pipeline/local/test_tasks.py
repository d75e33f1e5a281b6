"""Loaded models answer in the shapes of transformers' pipelines and of sentence-transformers' cross-encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trimaran
from tests.export import zoo
from tests.export.exported import LONG, exported_family, model_folder
from trimaran.core.errors import UsageError

TEXTS = ["Angela Merkel visited Paris in 2015, didn't she?", "I love pizza and talk."]


def model_and_folder(root: Path, task: str) -> tuple[Any, Path]:
    artifact = exported_family(root, "bert", task, profile=LONG)
    return trimaran.load(artifact.directory, store=root / "store", threads=1), model_folder(artifact)


def pipeline_of(folder: Path, task: str, **options: Any) -> Any:
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, model_max_length=64)
    model = getattr(transformers, zoo.HEADS[task]).from_pretrained(folder).eval()
    return transformers.pipeline(task, model=model, tokenizer=tokenizer, **options)


def assert_same(found: Any, wanted: Any) -> None:
    """The same containers, keys and strings, and the same numbers within float noise."""
    if isinstance(wanted, dict):
        assert found.keys() == wanted.keys()
        for key in wanted:
            assert_same(found[key], wanted[key])
    elif isinstance(wanted, (list, tuple)):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            assert_same(one, other)
    elif isinstance(wanted, (float, np.floating)):
        assert found == pytest.approx(float(wanted), abs=1e-5)
    else:
        assert found == wanted


def test_classify_is_the_text_classification_pipeline(tmp_path: Path) -> None:
    model, folder = model_and_folder(tmp_path, "text-classification")
    pipeline = pipeline_of(folder, "text-classification")
    pair = {"text": TEXTS[0], "text_pair": TEXTS[1]}
    assert_same(model.classify(TEXTS[0]), pipeline(TEXTS[0]))
    assert_same(model.classify(TEXTS), pipeline(TEXTS))
    assert_same(model.classify(TEXTS[0], top_k=2), pipeline(TEXTS[0], top_k=2))
    assert_same(model.classify(TEXTS, top_k=None), pipeline(TEXTS, top_k=None))
    assert_same(model.classify(pair), pipeline(pair))


def test_entities_are_the_token_classification_pipeline(tmp_path: Path) -> None:
    model, folder = model_and_folder(tmp_path, "token-classification")
    pipeline = pipeline_of(folder, "token-classification", aggregation_strategy="simple")
    assert_same(model.entities(TEXTS), pipeline(TEXTS))
    assert_same(model.entities(TEXTS[0]), pipeline(TEXTS[0]))
    options = {"aggregation_strategy": "max", "ignore_labels": ["B-PER"]}
    tagged = pipeline_of(folder, "token-classification", **options)
    assert_same(model.entities(TEXTS, **options), tagged(TEXTS))


def test_an_answer_is_a_span_in_the_shape_of_the_pipeline(tmp_path: Path) -> None:
    model, _ = model_and_folder(tmp_path, "question-answering")
    question, context = "Who visited Paris?", TEXTS[0]
    alone = model.answer(question, context)
    assert alone["answer"] == context[alone["start"] : alone["end"]]
    assert set(alone) == {"score", "start", "end", "answer"}
    assert model.answer([question, question], context) == [alone, alone]
    best = model.answer(question, context, top_k=3)
    assert len(best) == 3 and best[0] == alone


def test_fill_is_the_fill_mask_pipeline(tmp_path: Path) -> None:
    model, folder = model_and_folder(tmp_path, "fill-mask")
    pipeline = pipeline_of(folder, "fill-mask")
    one, two = "I love [MASK] talk.", "I [MASK] pizza [MASK]"
    assert_same(model.fill(one), pipeline(one))
    assert_same(model.fill([one, two], top_k=2), pipeline([one, two], top_k=2))


def test_fill_with_targets_is_the_fill_mask_pipeline_with_targets(tmp_path: Path) -> None:
    model, folder = model_and_folder(tmp_path, "fill-mask")
    pipeline = pipeline_of(folder, "fill-mask")
    text, words = "I love [MASK] talk.", ["the", "and", "again", "The"]
    assert_same(model.fill(text, targets=words), pipeline(text, targets=words))
    assert_same(model.fill([text], targets=words, top_k=2), [pipeline(text, targets=words, top_k=2)])
    assert_same(model.fill(text, targets="the"), pipeline(text, targets="the"))


def test_label_words_are_the_means_of_the_pipelines_targets(tmp_path: Path) -> None:
    model, folder = model_and_folder(tmp_path, "fill-mask")
    pipeline = pipeline_of(folder, "fill-mask")
    words = {"first": ["the", "again"], "second": ["and", "of", "in"], "third": "no"}
    template = "{} It is [MASK] ."
    wanted = []
    for text in TEXTS:
        targets = {
            label: pipeline(template.format(text), targets=list(each) if isinstance(each, list) else [each])
            for label, each in words.items()
        }
        means = {label: np.mean([row["score"] for row in rows]) for label, rows in targets.items()}
        wanted.append({label: mean / sum(means.values()) for label, mean in means.items()})
    found = model.classify(TEXTS, words, template="{} It is {mask} .")
    for rows, means in zip(found, wanted, strict=True):
        assert [row["label"] for row in rows] == sorted(means, key=lambda label: -means[label])
        assert_same({row["label"]: row["score"] for row in rows}, means)
    assert model.classify(TEXTS[0], words, template="{} It is {mask} .", top_k=1) == found[0][:1]
    with pytest.raises(UsageError, match="a mapping of labels to words"):
        model.classify(TEXTS[0], ["the"])


def test_zero_shot_is_the_zero_shot_pipeline(tmp_path: Path) -> None:
    task = "zero-shot-classification"
    model, folder = model_and_folder(tmp_path, task)
    pipeline = pipeline_of(folder, task)
    labels = ["weather", "money"]
    assert_same(model.classify(TEXTS[0], labels), pipeline(TEXTS[0], labels))
    assert_same(model.classify(TEXTS, "weather, money"), pipeline(TEXTS, "weather, money"))
    options = {"multi_label": True, "hypothesis_template": "It is about {}."}
    assert_same(model.classify(TEXTS, labels, **options), pipeline(TEXTS, labels, **options))


def test_rerank_is_the_cross_encoder(tmp_path: Path) -> None:
    from sentence_transformers import CrossEncoder

    model, folder = model_and_folder(tmp_path, "rerank")
    theirs = CrossEncoder(str(folder), device="cpu", max_length=64)
    documents = [*TEXTS, "Another one."]
    assert_same(model.rank("pizza", documents), theirs.rank("pizza", documents))
    options = {"top_k": 2, "return_documents": True}
    assert_same(model.rerank("pizza", documents, **options), theirs.rank("pizza", documents, **options))
    pairs = [("pizza", text) for text in documents]
    np.testing.assert_allclose(model.predict(pairs), theirs.predict(pairs), atol=1e-5)
    options = {"batch_size": 2, "show_progress_bar": False, "convert_to_tensor": True}
    np.testing.assert_allclose(model.predict(sentences=pairs, **options), theirs.predict(pairs, **options), atol=1e-5)
    for pair in (pairs[0], list(pairs[0])):
        assert model.predict(pair) == pytest.approx(float(theirs.predict(pair)), abs=1e-5)
    assert model.rerank("pizza", []) == []
    with pytest.raises(UsageError, match="activation"):
        model.predict(pairs, activation_fn=abs)


def test_the_evaluator_of_cross_encoders_takes_it(tmp_path: Path) -> None:
    from sentence_transformers import CrossEncoder
    from sentence_transformers.cross_encoder.evaluation import CrossEncoderRerankingEvaluator

    model, folder = model_and_folder(tmp_path, "rerank")
    theirs = CrossEncoder(str(folder), device="cpu", max_length=64)
    samples = [{"query": "pizza", "positive": [TEXTS[1]], "negative": [TEXTS[0], "Another one."]}]
    evaluator = CrossEncoderRerankingEvaluator(samples, write_csv=False)
    assert evaluator(model) == pytest.approx(evaluator(theirs), abs=1e-5)


def test_vectors_of_tokens_are_the_hidden_states(tmp_path: Path) -> None:
    model, folder = model_and_folder(tmp_path, "feature-extraction")
    wanted = pipeline_of(folder, "feature-extraction")(TEXTS)
    for found, rows in zip(model.features(TEXTS), wanted, strict=True):
        np.testing.assert_allclose(found, np.asarray(rows)[0], atol=1e-5)
    assert model.features(TEXTS[0]).shape == model.features(TEXTS)[0].shape


def test_late_interaction_is_maxsim_of_sentence_transformers(tmp_path: Path) -> None:
    import torch
    from sentence_transformers.util import maxsim

    model, _ = model_and_folder(tmp_path, "feature-extraction")
    query, *documents = [
        torch.nn.functional.normalize(torch.from_numpy(text), dim=-1) for text in model.features(TEXTS)
    ]
    found = model.score(TEXTS[0], TEXTS[1:])
    np.testing.assert_allclose(found, maxsim([query], documents)[0].numpy(), rtol=1e-5)
    assert model.score(TEXTS[0], [TEXTS[0]])[0] == pytest.approx(len(query), rel=1e-5)
    assert len(model.score(TEXTS[0], [])) == 0


def test_the_other_tasks_answer_as_they_are_served(tmp_path: Path) -> None:
    sparse = model_and_folder(tmp_path / "sparse", "sparse-embedding")[0]
    weights = [weight for _, weight in sparse.sparse(TEXTS, top_k=3)[0]]
    assert weights == sorted(weights, reverse=True) and len(weights) == 3
    hybrid = model_and_folder(tmp_path / "hybrid", "hybrid-embedding")[0]
    answers = hybrid.hybrid(TEXTS)
    np.testing.assert_allclose(hybrid.encode(TEXTS), [answer["dense"] for answer in answers], atol=1e-6)
    assert set(hybrid.hybrid(TEXTS[0], outputs=["sparse"])) == {"sparse"}
    assert hybrid.score(TEXTS[0], TEXTS)[0] == pytest.approx(1, rel=1e-5)
    with pytest.raises(UsageError, match="single texts"):
        hybrid.encode([(TEXTS[0], TEXTS[1])])
    choices = model_and_folder(tmp_path / "choice", "multiple-choice")[0].choose(TEXTS[0], ["one", "another"])
    assert {row["index"] for row in choices} == {0, 1}
    assert sum(row["score"] for row in choices) == pytest.approx(1, abs=1e-5)
    (chance,) = model_and_folder(tmp_path / "next", "next-sentence")[0].follows([(TEXTS[0], TEXTS[1])])
    assert 0 <= chance <= 1
