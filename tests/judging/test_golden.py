"""The golden bundle: its requests, its limits and its file."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.serving.triton.test_golden_check import bundle
from tests.serving.worlds import TEXTS, by_hand
from trimaran.core.corpus import kinds_of, shipped_texts
from trimaran.core.errors import IntegrityError
from trimaran.core.tasks import gates_for
from trimaran.judging.golden import FEWEST_OF_KIND, golden_rows, read_golden


def test_limits_are_the_gates_own_whatever_the_proven_engine_reached() -> None:
    wanted = {"EMBEDDING": by_hand(TEXTS)}
    proven = {"EMBEDDING": by_hand(TEXTS) + np.float32(0.3)}
    gates = gates_for("embedding", "strict", {"rank_correlation": 0.9995})
    golden = bundle("embedding", "embedding", wanted, proven, gates)
    assert golden.observed["mean_cosine_distance"] > 0.0012
    assert {limit.metric: limit.limit for limit in golden.limits} == {gate.metric: gate.limit for gate in gates}


def test_a_bundle_survives_its_file_and_damage_is_said_so(tmp_path: Path) -> None:
    wanted = {"EMBEDDING": by_hand(TEXTS)}
    golden = bundle("embedding", "embedding", wanted, wanted, gates_for("embedding", "strict", {}))
    path = tmp_path / "golden.json"
    path.write_text(golden.to_json())
    assert read_golden(path) == golden
    np.testing.assert_array_equal(read_golden(path).tensors["EMBEDDING"], wanted["EMBEDDING"])
    path.write_text(golden.to_json()[:-40])
    with pytest.raises(IntegrityError, match="not a readable golden bundle"):
        read_golden(path)


def test_golden_requests_are_what_each_task_is_asked() -> None:
    pairs = [(f"question {n}", f"text {n} of some words") for n in range(100)]
    texts = [text for _, text in pairs]
    assert golden_rows("fill-mask", texts, {"mask_token": "<mask>"})[0] == {"TEXT": "text 0 <mask> some words"}
    assert golden_rows("question-answering", pairs, {})[0] == {"QUESTION": "question 0", "CONTEXT": texts[0]}
    query = golden_rows("rerank", pairs, {})[1]
    assert (query["QUERY"], len(query["DOCUMENTS"]), query["DOCUMENTS"][0]) == ("question 3", 4, texts[3])
    assert len(golden_rows("embedding", texts, {})) == 64
    assert golden_rows("embedding", texts[:3], {}) == tuple({"TEXT": text} for text in texts[:3])


def test_every_kind_of_text_has_enough_golden_requests() -> None:
    texts = shipped_texts("judging")
    rows = golden_rows("embedding", texts, {})
    counts = Counter(kinds_of([str(row["TEXT"]) for row in rows]))
    assert len(counts) == len(set(kinds_of(texts))) and min(counts.values()) >= FEWEST_OF_KIND
    # Vectors of every token are large, and few.
    assert len(golden_rows("feature-extraction", texts, {})) == 8
