"""Where the fp32 graph is at hand, `trimaran finish` proves an INT8 version by bounds on all judging texts."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from tests.export.exported import QUIET
from tests.model_repository.worlds import DRAFT_FIELDS
from tests.tiny import WORDS, tiny_artifact
from trimaran.core.artifact import Artifact, Draft, Recipe
from trimaran.core.choices import Rows
from trimaran.core.corpus import shipped_texts
from trimaran.core.errors import QualityError
from trimaran.core.instructions import PRODUCTS_VARIABLE
from trimaran.core.serving_json import read_serving
from trimaran.core.store import Store
from trimaran.core.tasks import Gate
from trimaran.judging.final_answers import final_answers
from trimaran.judging.golden import make_golden
from trimaran.model_repository.layout import lay_out
from trimaran.pipeline import proof_by_texts
from trimaran.pipeline.reprove import Reproof, reprove_repository

# All their words are unknown to the tiny tokenizer: a change of one known word does not show in them.
REQUESTS = [{"TEXT": text} for text in shipped_texts("judging")[:5]]
TEXTS = tuple(" ".join(words) for words in itertools.product(WORDS[4:], repeat=3))
GATES = (Gate("mean_cosine_distance", "<=", 1e-3), Gate("tail_cosine_distance", "<=", 0.01))
BATCHES = Gate("batch_change", "<=", 1e-5)


def int8_artifact(root: Path, *, other_word: str = "", by_width: bool = False) -> Artifact:
    """The tiny graph as an INT8 artifact. One word may have the opposite vector.

    `by_width` divides by the width of the call, so that an answer depends on its padding, but on no neighbour.
    """
    import onnx
    from onnx import helper, numpy_helper

    parent = tiny_artifact(root)

    def make(folder: Path) -> Draft:
        for file in parent.files:
            (folder / file.name).write_bytes((parent.directory / file.name).read_bytes())
        model = onnx.load(str(folder / "model.onnx"))
        place = next(item for item in model.graph.initializer if item.name == "table")
        table = np.array(numpy_helper.to_array(place))
        if other_word:
            table[WORDS.index(other_word)] *= -1
        place.CopyFrom(numpy_helper.from_array(table, "table"))
        if by_width:
            count = next(node for node in model.graph.node if "count" in node.output)
            count.input[0] = "ones"
            at = list(model.graph.node).index(count)
            model.graph.node.insert(at, helper.make_node("Exp", ["zeros"], ["ones"]))
            model.graph.node.insert(at, helper.make_node("Sub", ["mask", "mask"], ["zeros"]))
        onnx.save(model, str(folder / "model.onnx"))
        return Draft.model_validate({**parent.model_dump(include=DRAFT_FIELDS), "precision": "int8-dynamic"})

    recipe = Recipe(step="int8", parents=(parent.digest,), parameters={"word": other_word, "by_width": by_width})
    return Store(root).produce(recipe, make)


def finished_here(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    other_word: str = "",
    requests: list[dict[str, str]] = REQUESTS,
    texts: tuple[str, ...] = TEXTS,
    store: str = "s",
    rows: Rows = "padded",
    by_width: bool = False,
) -> Reproof:
    """Deploy on a CPU with VNNI, finish on one without."""
    artifact = int8_artifact(root / "s", other_word=other_word, by_width=by_width)
    answers = final_answers(artifact, requests, threads=1, policy=rows)
    golden = make_golden(
        task="embedding", model="m", reference="", numbers="embedding", rows=requests, wanted=answers, proven=answers,
        gates=(*GATES, BATCHES),
    )  # fmt: skip
    monkeypatch.setattr(proof_by_texts, "texts_for", lambda task, part, path: texts)
    monkeypatch.setenv(PRODUCTS_VARIABLE, "vnni")
    lay_out(artifact, repository=root / "r", name="m", rows=rows, threads=1, golden=golden)
    monkeypatch.setenv(PRODUCTS_VARIABLE, "without-vnni")
    (proof,) = reprove_repository(root / "r", "m", store=Store(root / store), progress=QUIET)
    return proof


def test_all_judging_texts_prove_a_version_whose_fp32_graph_is_at_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proof = finished_here(tmp_path, monkeypatch)
    assert (proof.texts, proof.lacks) == (len(TEXTS), "")
    assert [(check.name, check.n) for check in proof.checks if check.n == len(TEXTS)] == [
        (gate.metric, len(TEXTS)) for gate in GATES
    ]


def test_rows_are_certified_as_they_are_served_and_not_against_texts_without_padding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proof = finished_here(tmp_path / "rounded", monkeypatch, by_width=True, rows="rounded")
    (check,) = [check for check in proof.checks if check.name == "batch_change"]
    assert check.holds and "texts among neighbours" in check.detail
    with pytest.raises(QualityError, match=r"batch change .* is above its limit 1e-5 \(of \d+ texts"):
        finished_here(tmp_path / "padded", monkeypatch, by_width=True, rows="padded")


def test_a_change_that_no_golden_request_shows_is_found_and_the_version_stays_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(QualityError, match=r"m version 1 is not proven here: mean 1−cos .* is above its limit 0.001"):
        finished_here(tmp_path, monkeypatch, other_word="dog")
    assert read_serving(tmp_path / "r" / "m" / "1").proven_on == ("vnni",)


@pytest.mark.parametrize(
    ("world", "lacks"),
    [
        ({"store": "another"}, "its fp32 graph is not on this machine"),
        ({"requests": [{"TEXT": "the cat"}]}, "texts of your own"),
        ({"texts": TEXTS[:100]}, "its tokenizer reads 100 of the shipped texts"),
    ],
)
def test_where_texts_cannot_decide_the_golden_requests_do_and_the_reason_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, world: dict[str, object], lacks: str
) -> None:
    proof = finished_here(tmp_path, monkeypatch, **world)  # type: ignore[arg-type]
    assert proof.texts == 0 and lacks in proof.lacks
    assert read_serving(tmp_path / "r" / "m" / "1").proven_on == ("vnni", "without-vnni")
