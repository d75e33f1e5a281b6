from __future__ import annotations

import numpy as np

from tests.benchmarks.fakes import row, usual_report
from trimaran.benchmarks.report.render_csv import render_csv
from trimaran.benchmarks.report.render_html import render_html
from trimaran.benchmarks.report.render_markdown import render_markdown
from trimaran.benchmarks.report.wording import metric_words
from trimaran.core.tasks import TASKS
from trimaran.judging.quality_intervals import interval_of_mean, intervals

GENERATOR = np.random.default_rng(3)
VECTORS = {"embedding": GENERATOR.normal(size=(60, 16)).astype(np.float32)}
NEAR = {"embedding": VECTORS["embedding"] + 0.1 * GENERATOR.normal(size=(60, 16)).astype(np.float32)}


def test_an_interval_holds_the_metric_that_it_is_of() -> None:
    metrics = TASKS["embedding"].fidelity(VECTORS, NEAR)
    found = intervals(TASKS["embedding"], VECTORS, NEAR)
    assert set(found) == {"mean_cosine_distance", "epsilon_recall", "neighbour_overlap"}
    assert all(low < metrics[name] < high for name, (low, high) in found.items())
    assert found == intervals(TASKS["embedding"], VECTORS, NEAR), "the same answers give the same interval"


def test_labels_that_all_agree_leave_the_doubt_of_so_few_texts_and_one_flip_leaves_more() -> None:
    wanted = {"logits": np.tile(np.array([[3.0, -3.0]], np.float32), (50, 1))}
    flipped = {"logits": wanted["logits"].copy()}
    flipped["logits"][0] *= -1
    clean_low, clean_high = intervals(TASKS["text-classification"], wanted, wanted)["label_agreement"]
    assert (round(clean_low, 4), clean_high) == (0.9289, 1.0)
    low, high = intervals(TASKS["text-classification"], wanted, flipped)["label_agreement"]
    assert low < clean_low < 0.98 < high < 1.0


def test_more_texts_make_the_interval_narrower() -> None:
    values = GENERATOR.normal(size=400)
    (low, high), (wide_low, wide_high) = interval_of_mean(values), interval_of_mean(values[:25])
    assert high - low < (wide_high - wide_low) / 2


def test_an_answer_that_is_not_finite_has_no_interval() -> None:
    broken = {"embedding": VECTORS["embedding"].copy()}
    broken["embedding"][0, 0] = np.nan
    assert intervals(TASKS["embedding"], VECTORS, broken) == {}


def test_the_interval_stands_beside_its_metric_in_every_format() -> None:
    found = row("quick")
    assert found.quality is not None
    quality = found.quality.model_copy(update={"intervals": {"neighbour_overlap": (0.972, 0.985)}})
    assert metric_words(quality, "neighbour_overlap").endswith(" (0.972–0.985)")
    report = usual_report()
    candidates = tuple(one.model_copy(update={"quality": quality}) if one.quality else one for one in report.candidates)
    report = report.model_copy(update={"candidates": candidates})
    assert "(0.972–0.985)" in render_markdown(report)
    assert "<td>1 (0.972–0.985)</td>" in render_html(report)
    assert ",0.972,0.985," in render_csv(report)
