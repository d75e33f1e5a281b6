"""A large model is proven with fewer texts and tokens, which still prove its gates."""

from __future__ import annotations

from collections import Counter

import pytest

from trimaran.core.corpus import kinds_of, shipped_texts
from trimaran.core.proof_effort import LARGE, USUAL, effort_for, proof_effort, some_of_each_kind
from trimaran.core.tail import fewest_texts, tail_rank
from trimaran.judging.bounds import ALPHA, lower_share
from trimaran.judging.invariance import CALLS, certificate_groups
from trimaran.runtime.text import Row

# Four lossy candidates compete unasked.
FOUR = ALPHA / 4


@pytest.mark.parametrize(
    ("name", "layers", "hidden", "large"),
    [
        ("MiniLM", 6, 384, False),
        ("BERT-base", 12, 768, False),
        ("ModernBERT-base", 22, 768, False),
        ("EmbeddingGemma", 24, 768, False),
        ("bge-m3", 24, 1024, True),
        ("Qwen3-0.6B", 28, 1024, True),
    ],
)
def test_a_large_model_is_one_with_many_weights_in_its_layers(name: str, layers: int, hidden: int, large: bool) -> None:
    assert (proof_effort(layers, hidden) is LARGE) is large
    assert (effort_for({"layers": layers, "hidden": hidden}) is LARGE) is large


def test_nothing_is_known_of_a_module_so_its_proof_is_the_usual_one() -> None:
    assert effort_for({}) is USUAL


def test_its_texts_prove_a_share_and_a_tail_even_if_one_text_is_an_outlier() -> None:
    texts = shipped_texts("judging")
    assert LARGE.judging_of_kind is not None
    chosen = some_of_each_kind(texts, LARGE.judging_of_kind)
    assert set(Counter(kinds_of(chosen)).values()) == {LARGE.judging_of_kind}
    assert set(kinds_of(chosen)) == set(kinds_of(texts))
    assert len(chosen) > fewest_texts(FOUR)
    assert tail_rank(len(chosen), FOUR) >= 2
    # Of `label_agreement`, the strictest gate on a share: 0.99.
    assert lower_share(len(chosen) - 1, len(chosen), FOUR) >= 0.99


def test_texts_are_drawn_from_the_whole_of_each_kind_and_keep_their_order() -> None:
    texts = shipped_texts("judging")
    chosen = some_of_each_kind(texts, 2)
    places = [texts.index(text) for text in chosen]
    assert places == sorted(places)
    queries = [place for place, kind in enumerate(kinds_of(texts)) if kind == "query"]
    of_chosen = [place for place in places if place in queries]
    assert (of_chosen[0], len(of_chosen)) == (queries[0], 2) and of_chosen[1] >= queries[len(queries) // 2]


def test_its_certificate_has_as_many_calls_with_fewer_tokens() -> None:
    rows = [Row([1] * (3 + index * 7 % 120), [0] * (3 + index * 7 % 120)) for index in range(200)]

    def calls(effort: object) -> list[int]:
        groups = certificate_groups(rows, "padded", size=32, seed=1, maximum=128, effort=effort)  # type: ignore[arg-type]
        return [len(group.rows) * group.length for group in groups]

    assert len(calls(LARGE)) >= CALLS and len(calls(USUAL)) >= CALLS
    assert sum(calls(LARGE)) < sum(calls(USUAL)) / 2
