from __future__ import annotations

from tests.benchmarks.fakes import report, row
from trimaran.benchmarks.report.proof_sentence import proof_sentence
from trimaran.benchmarks.report.render_html import render_html
from trimaran.benchmarks.report.render_markdown import render_markdown
from trimaran.benchmarks.report.summary import summary_json
from trimaran.benchmarks.report.wording import broken_words
from trimaran.judging.gate_check import GateCheck
from trimaran.judging.judgement import KindQuality, Quality

MEAN = GateCheck(
    name="mean_cosine_distance", observed=5e-4, limit=1.2e-3, bound=6.1e-4, verdict="proven", n=1200, comparison="<="
)
TAIL = MEAN.model_copy(update={"name": "tail_cosine_distance", "limit": 0.01, "bound": 0.0031})
RECALL = MEAN.model_copy(
    update={"name": "epsilon_recall", "observed": 0.999, "limit": 0.99, "bound": 0.997, "comparison": ">="}
)


def judged(**changes: object) -> Quality:
    quality = row("quick").quality
    assert quality is not None
    facts = {
        "checks": (MEAN, TAIL, RECALL),
        "n": 1200,
        "alpha": 0.0125,
        "judged": 4,
        "vnni": True,
        "metrics_version": 7,
        "kinds": (
            KindQuality(kind="headline", n=60, metrics={"mean_cosine_distance": 4e-4, "epsilon_recall": 1.0}),
            KindQuality(kind="caption", n=60, metrics={"mean_cosine_distance": 1.1e-3, "epsilon_recall": 0.998}),
        ),
    }
    return quality.model_copy(update={**facts, **changes})


def test_one_sentence_says_what_is_proven_for_which_texts_and_with_how_many_tries() -> None:
    assert proof_sentence(judged()) == (
        "95 % sure of each, for texts like these 1,200 of 2 kinds: mean 1−cos is at most 6.1e-4 "
        "(a text above 0.024 counts as that); "
        "at most 1 % of the texts move by more than 0.0031 in 1−cos; ε-recall@10 is at least 0.997; "
        "the worst kind is caption (mean 1−cos 0.0011 as measured on 60 texts; the limit of a kind is 0.0015); "
        "on a CPU with VNNI; 4 lossy candidates judged."
    )


def test_an_earlier_bound_of_a_share_of_neighbours_was_of_capped_losses_and_still_says_so() -> None:
    assert "ε-recall@10 is at least 0.997 (a text below 0.8 counts as that); " in proof_sentence(
        judged(metrics_version=6)
    )


def test_what_equals_eager_needs_no_statistics_and_an_old_judgement_has_no_sentence() -> None:
    assert "eager PyTorch's up to float noise" in proof_sentence(judged(alpha=None))
    assert proof_sentence(judged(metrics_version=0)) == ""


def test_the_sentence_stands_in_every_form_of_the_report() -> None:
    candidate = row("quick").model_copy(update={"quality": judged()})
    found = report([candidate], {"quick": 3.0})
    words = "95 % sure of each, for texts like these 1,200 of 2 kinds"
    assert words in found.verdict.proof
    assert words in summary_json(found)["verdict"]
    assert words in render_markdown(found)
    page = render_html(found).replace("\u00a0", " ")
    assert words in page
    table = page.partition("kinds of text of quick")[2].partition("</table>")[0]
    assert "mean 1−cos" in table and "caption" in table, "every kind stands in a table"


def test_an_unmeasured_report_still_shows_every_kind_its_bounds_and_each_remark() -> None:
    candidate = row("quick").model_copy(update={"quality": judged()})
    found = report([candidate], {"quick": 3.0})
    unmeasured = found.model_copy(update={"measurements": (), "notes": ("Pooling is assumed.", "A second remark.")})
    page = render_html(unmeasured).replace("\u00a0", " ")
    table = page.partition("kinds of text of quick")[2].partition("</table>")[0]
    assert "caption" in table and "The limit of one kind: mean 1−cos ≤ 0.0015" in page
    assert "up to 6.1e-4" in page and "at least 0.997" in page
    assert "<li>Pooling is assumed.</li>" in page and "<li>A second remark.</li>" in page
    assert "round of random order" not in page and "rounds of random order" not in page.replace("\n", " ")
    chosen = unmeasured.model_copy(update={"candidates": (candidate.model_copy(update={"verdict": "chosen"}),)})
    assert "| caption | 60 | 0.0011 | 0.998 |" in render_markdown(chosen)


def test_a_gate_that_is_not_proven_says_how_many_texts_it_needs() -> None:
    check = MEAN.model_copy(
        update={"observed": 0.0011, "bound": 0.0013, "verdict": "not proven", "needs": 832, "n": 460}
    )
    assert broken_words(check) == (
        "mean 1−cos 0.0011 keeps its limit 0.0012, but is not proven (up to 0.0013): needs 832 texts, has 460"
    )
    broken = MEAN.model_copy(update={"observed": 0.0073, "limit": 0.004, "verdict": "broken", "kind": "caption"})
    assert broken_words(broken) == "mean 1−cos of caption texts 0.0073 is above its limit 0.004"
