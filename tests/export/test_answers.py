"""Text in, answers out: the exported graph with `runtime.answers` says what `transformers` pipelines say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import answers
from tests.export import zoo
from tests.export.exported import LONG, Exports, answering, exported_family, model_folder
from trimaran.core.artifact import Artifact
from trimaran.core.families import FAMILIES

TEXTS = (
    "Angela Merkel visited Paris in 2015, didn't she?",
    "今天天气很好，我们去公园吧。",
    "I love pizza 🍕 and naïve café talk 👩‍👩‍👧!",
    "",
    "x",
    "  spaces   everywhere\tand\nlines ",
)
SEEN = [text for text in TEXTS if text]


def families_with(task: str) -> list[Any]:
    """Every family that is tested with the task; the quick set has those of `KINDS`.

    The answers of a family that was built after another one are made of the same numbers by the same code.
    """
    return [
        pytest.param(name, marks=() if name in zoo.KINDS else pytest.mark.slow)
        for name, row in FAMILIES.items()
        if zoo.is_tested(name, task) and (task == "embedding" or not row.after)
    ]


def _tokenizer(folder: Path, **options: Any) -> Any:
    """The family's own, with what it gives unasked: transformers 5 omits the segments of ALBERT and XLNet."""
    import transformers

    return transformers.AutoTokenizer.from_pretrained(folder, **options)


def _pipeline(folder: Path, task: str, family: str, **options: Any) -> Any:
    import transformers

    head = zoo.HEADS[task]
    model = getattr(transformers, FAMILIES[family].classes.get(head, head)).from_pretrained(folder)
    tokenizer = _tokenizer(folder, model_max_length=64)
    return transformers.pipeline(task, model=model.eval(), tokenizer=tokenizer, **options)


def _same(mine: Any, theirs: Any) -> None:
    """Equal structure and words; numbers to 1e-5."""
    if isinstance(theirs, dict):
        assert sorted(mine) == sorted(theirs)
        for key in theirs:
            _same(mine[key], theirs[key])
    elif isinstance(theirs, (list, tuple)):
        assert len(mine) == len(theirs)
        for one, other in zip(mine, theirs, strict=True):
            _same(one, other)
    elif isinstance(theirs, (float, np.floating)):
        assert mine == pytest.approx(float(theirs), abs=1e-5)
    else:
        assert mine == theirs


PAIRS = [("A question?", "An answer 好."), ("one", ""), ("🍕", "今天天气很好")]


@pytest.mark.parametrize("family", families_with("text-classification"))
def test_classes_are_those_of_the_pipeline(exports: Exports, family: str) -> None:
    graph = exports(family, "text-classification")
    _same_classes(graph, model_folder(graph), family)


@pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta"])
@pytest.mark.parametrize("problem", ["multi_label_classification", "regression"])
def test_independent_labels_and_values_are_those_of_the_pipeline(tmp_path: Path, family: str, problem: str) -> None:
    graph = exported_family(tmp_path, family, "text-classification", profile=LONG, problem_type=problem)
    _same_classes(graph, tmp_path / "model", family)


def _same_classes(graph: Artifact, folder: Path, family: str) -> None:
    wanted = _pipeline(folder, "text-classification", family, top_k=None)
    # A decoder's head has nothing to read in an empty text, in transformers neither.
    texts = SEEN if family == "gpt2" else list(TEXTS)
    _same(answers.classes(answering(graph), texts), wanted(texts))
    theirs = wanted([{"text": first, "text_pair": second} for first, second in PAIRS])
    _same(answers.classes(answering(graph), PAIRS), theirs)


@pytest.mark.parametrize("family", families_with("embedding"))
def test_embeddings_are_those_of_eager_text_by_text(exports: Exports, family: str) -> None:
    import torch
    import transformers

    graph = exports(family, "embedding")
    folder = model_folder(graph)
    name = FAMILIES[family].classes.get("AutoModel", "AutoModel")
    model = getattr(transformers, name).from_pretrained(folder).eval()
    served = answering(graph)
    tokenizer = _tokenizer(folder, model_max_length=64)
    texts = SEEN if family == "gpt2" else TEXTS
    for mine, text in zip(answers.embeddings(served, texts), texts, strict=True):
        inputs = tokenizer(text, truncation=True, return_tensors="pt")
        with torch.inference_mode():
            states = model(**inputs).last_hidden_state[0]
        np.testing.assert_allclose(mine, torch.nn.functional.normalize(states.mean(0), dim=0), atol=1e-5)


@pytest.mark.parametrize("family", families_with("token-classification"))
def test_entities_are_those_of_the_pipeline(exports: Exports, family: str) -> None:
    graph = exports(family, "token-classification")
    wanted = _pipeline(model_folder(graph), "token-classification", family)
    served = answering(graph)
    for aggregation in ("none", "simple", "first", "average", "max"):
        theirs = [wanted(text, aggregation_strategy=aggregation) for text in SEEN]
        mine = answers.entities(served, SEEN, aggregation=aggregation)
        _same(mine, [list(found) for found in theirs])
    assert answers.entities(served, [""]) == [[]]
    assert any(mine)


def test_entities_of_a_long_text_are_found_by_windows(exports: Exports) -> None:
    graph = exports("bert", "token-classification")
    text = " ".join(SEEN[:1] * 12)
    import transformers

    model = transformers.AutoModelForTokenClassification.from_pretrained(model_folder(graph)).eval()
    tokenizer = _tokenizer(model_folder(graph), model_max_length=64)
    wanted = transformers.pipeline(
        "token-classification", model=model, tokenizer=tokenizer, aggregation_strategy="simple", stride=16
    )
    _same(answers.entities(answering(graph), [text], stride=16)[0], wanted(text))


@pytest.mark.parametrize("family", families_with("fill-mask"))
def test_fillings_are_those_of_the_pipeline(exports: Exports, family: str) -> None:
    graph = exports(family, "fill-mask")
    wanted = _pipeline(model_folder(graph), "fill-mask", family)
    mask = wanted.tokenizer.mask_token
    single, double = f"Paris is {mask} 好 🍕.", f"{mask} and {mask}"
    mine = answers.fillings(answering(graph), [single, double, "nothing to fill", ""])
    _same(mine[0], [wanted(single)])
    _same(mine[1], wanted(double))
    assert mine[2:] == [[], []]


@pytest.mark.parametrize("family", families_with("zero-shot-classification"))
@pytest.mark.parametrize("multi_label", [False, True])
def test_zero_shot_is_that_of_the_pipeline(exports: Exports, family: str, multi_label: bool) -> None:
    graph = exports(family, "zero-shot-classification")
    wanted = _pipeline(model_folder(graph), "zero-shot-classification", family)
    labels = ["politics", "food 🍕", "天气"]
    mine = answers.zero_shot(answering(graph), SEEN, labels=labels, multi_label=multi_label)
    theirs = [wanted(text, candidate_labels=labels, multi_label=multi_label) for text in SEEN]
    for one, other in zip(mine, theirs, strict=True):
        # Labels that an untrained head cannot tell apart may stand in either order.
        assert one["scores"] == pytest.approx(other["scores"], abs=1e-5)
        _same(dict(zip(*one.values(), strict=True)), dict(zip(other["labels"], other["scores"], strict=True)))


@pytest.mark.parametrize("family", families_with("feature-extraction"))
def test_token_vectors_are_those_of_the_pipeline(exports: Exports, family: str) -> None:
    graph = exports(family, "feature-extraction")
    wanted = _pipeline(model_folder(graph), "feature-extraction", family)
    texts = SEEN if family == "gpt2" else TEXTS
    for mine, text in zip(answers.token_features(answering(graph), texts), texts, strict=True):
        np.testing.assert_allclose(mine["token_embeddings"], np.asarray(wanted(text))[0], atol=1e-5)
        assert mine["tokens"] == wanted.tokenizer.convert_ids_to_tokens(wanted.tokenizer(text)["input_ids"])


@pytest.mark.parametrize("family", families_with("rerank"))
def test_ranking_is_that_of_a_cross_encoder(exports: Exports, family: str) -> None:
    from sentence_transformers import CrossEncoder

    graph = exports(family, "rerank")
    documents = [text for text in TEXTS if text]
    wanted = CrossEncoder(str(model_folder(graph)), device="cpu")
    theirs = wanted.rank("weather 天气", documents)
    mine = answers.ranked(answering(graph), [("weather 天气", documents), ("nothing", [])])
    # By document: two that an untrained head scores alike to the last bit may stand in either order.
    scored = {row["index"]: row["score"] for row in mine[0]}
    assert scored == pytest.approx({row["corpus_id"]: row["score"] for row in theirs}, abs=1e-6)
    assert list(scored.values()) == sorted(scored.values(), reverse=True)
    assert mine[1] == []


@pytest.mark.parametrize("family", families_with("sparse-embedding"))
def test_sparse_vectors_are_those_of_splade(exports: Exports, family: str) -> None:
    import torch
    import transformers

    graph = exports(family, "sparse-embedding")
    model = transformers.AutoModelForMaskedLM.from_pretrained(model_folder(graph)).eval()
    tokenizer = _tokenizer(model_folder(graph))
    for mine, text in zip(answers.sparse_vectors(answering(graph), TEXTS), TEXTS, strict=True):
        with torch.inference_mode():
            logits = model(**tokenizer(text, return_tensors="pt")).logits[0]
        weights = torch.log1p(torch.relu(logits)).amax(0).numpy()
        assert len(mine) == int((weights > 0).sum())
        np.testing.assert_allclose([row["weight"] for row in mine], [weights[row["token"]] for row in mine], atol=1e-5)


@pytest.mark.parametrize("family", families_with("question-answering"))
def test_answers_to_questions_are_the_best_spans_of_eager(exports: Exports, family: str) -> None:
    graph = exports(family, "question-answering")
    context = "Berlin 是德国的首都 🍕. " + "The park is green and the weather is fine. " * 8
    found = answers.answers(answering(graph), [("Where?", context)], top_k=3, stride=8)[0]
    eager = _eager_spans(
        model_folder(graph),
        "Where?",
        context,
        segments="token_type_ids" in graph.signature.input_names,
        context_first=family == "xlnet",
        stride=8,
    )
    assert [row["score"] for row in found] == sorted((row["score"] for row in found), reverse=True)
    for row in found:
        assert row["answer"] == context[row["start"] : row["end"]]
        assert row["score"] == pytest.approx(eager[(row["start"], row["end"])], abs=1e-5)
    assert found[0]["score"] == pytest.approx(max(eager.values()), abs=1e-5)


def _eager_spans(
    folder: Path, question: str, context: str, *, segments: bool, context_first: bool, stride: int
) -> dict[tuple[int, int], float]:
    """Every allowed span with its probability, by plain loops over eager PyTorch's logits."""
    import torch
    import transformers

    model = transformers.AutoModelForQuestionAnswering.from_pretrained(folder).eval()
    tokenizer = _tokenizer(folder)
    first = context_first
    encoded = tokenizer(
        *((context, question) if first else (question, context)),
        truncation="only_first" if first else "only_second",
        max_length=64,
        stride=stride,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
        return_token_type_ids=True,
    )
    spans: dict[tuple[int, int], float] = {}
    for window in range(len(encoded["input_ids"])):
        ids = torch.tensor([encoded["input_ids"][window]])
        types = {"token_type_ids": torch.tensor([encoded["token_type_ids"][window]])} if segments else {}
        with torch.inference_mode():
            output = model(input_ids=ids, attention_mask=torch.ones_like(ids), **types)
        parts = encoded.sequence_ids(window)
        places = [place for place, part in enumerate(parts) if part == (0 if first else 1)]
        special = [place for place, part in enumerate(parts) if part is None]
        kept = torch.tensor([*places, *(special[-1:] if first else special[:1])])
        start = torch.softmax(output.start_logits[0][kept].double(), 0)
        end = torch.softmax(output.end_logits[0][kept].double(), 0)
        for i, a in enumerate(places):
            for j, b in enumerate(places[i : i + 15], start=i):
                key = (encoded["offset_mapping"][window][a][0], encoded["offset_mapping"][window][b][1])
                spans[key] = max(spans.get(key, 0.0), float(start[i] * end[j]))
    return spans


def test_no_answer_competes_when_asked(exports: Exports) -> None:
    graph = exports("bert", "question-answering")
    found = answers.answers(answering(graph), [("Where?", "In Paris.")], top_k=50, no_answer=True)[0]
    assert [row for row in found if row["answer"] == ""]
    assert 0 < sum(row["score"] for row in found) <= 1 + 1e-6


def test_a_question_without_room_for_a_context_is_refused(exports: Exports) -> None:
    graph = exports("bert", "question-answering")
    with pytest.raises(ValueError, match="no room for a context"):
        answers.answers(answering(graph), [("why " * 100, "In Paris.")])
