"""The search behind `trimaran tune`, with a machine whose figures are known."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from trimaran.core.environment import capture
from trimaran.core.errors import QualityError
from trimaran.core.progress import SilentProgress
from trimaran.pipeline.tune.record import TuneRound, Tuning
from trimaran.pipeline.tune.render import render_html, render_markdown
from trimaran.pipeline.tune.search import Search
from trimaran.pipeline.tune.settings import Figures, Setting, front, gain, groupings, shapes, waits
from trimaran.runtime.text import groups_of

PRESENT = Setting(instances=1, threads=2, rows_a_call=32)


class Machine:
    """Two processes with a thread each get more through; more than 8 rows a call cost a tenth; waiting costs itself."""

    def __init__(self, *, seconds: float = 0.0) -> None:
        self.asked: Counter[Setting] = Counter()
        self.forgotten: list[Setting] = []
        self.seconds = seconds

    def measure(self, setting: Setting, seconds: float) -> TuneRound:
        if setting.stretch > 1.2:
            raise QualityError("As served, it is not what was proven.")
        self.asked[setting] += 1
        alone_ms = 4.0 / setting.threads + setting.delay_us / 1e3
        crowd = 100.0 * (1.5 if (setting.instances, setting.threads) == (2, 1) else setting.instances)
        crowd /= 1 + 0.1 * (setting.rows_a_call > 8) + setting.delay_us / 1e3
        return TuneRound(alone_ns=(int(alone_ms * 1e6),) * 3, crowd_answers=int(crowd * 10), crowd_elapsed_ns=10**10)


def searched(machine: Machine, *, objective: str = "throughput", budget_s: float = 60.0) -> tuple[Search, Tuning]:
    with SilentProgress().stage("tune") as step:
        search = Search(
            present=PRESENT,
            objective=objective,  # type: ignore[arg-type]
            measure=machine.measure,
            forget=machine.forgotten.append,
            step=step,
            budget_s=budget_s,
            glance_s=0.1,
        )
        search.begin()
        search.wave(lambda setting: shapes(setting, 2))
        search.wave(lambda setting: waits(setting, 32))
        search.wave(lambda setting: groupings(setting, 32, "padded"))
        finalists = search.finals()
    chosen, reason = search.choice(finalists)
    return search, Tuning(
        model="tiny",
        version=1,
        task="embedding",
        objective=search.objective,
        cpus=2,
        callers=8,
        texts=64,
        budget_s=budget_s,
        spent_s=search.spent_s,
        others_share=0.25,
        present=PRESENT,
        chosen=chosen,
        reason=reason,
        tried=search.tried(chosen, finalists),
        created="2026-01-01T00:00:00+00:00",
        environment=capture(),
    )


def test_the_search_finds_the_best_setting_and_stops_the_losers_early() -> None:
    machine = Machine()
    _, tuning = searched(machine)
    assert (tuning.chosen.instances, tuning.chosen.delay_us) == (2, 0)
    assert tuning.chosen.rows_a_call <= 8
    assert "answers/s (before" in tuning.reason
    stopped = [tried for tried in tuning.tried if tried.verdict == "stopped"]
    assert stopped and all(tried.reason for tried in stopped)
    assert sorted(machine.forgotten, key=str) == sorted((tried.setting for tried in stopped), key=str)
    assert all(machine.asked[tried.setting] == 1 for tried in stopped if tried.reason == "lost at first sight")
    assert machine.asked[tuning.chosen] > max(machine.asked[tried.setting] for tried in stopped)
    assert machine.asked[PRESENT] == machine.asked[tuning.chosen]


class Noise(Machine):
    """Every setting is as good as every other, and each measurement is off by 5 %."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.generator = np.random.default_rng(seed)

    def measure(self, setting: Setting, seconds: float) -> TuneRound:
        self.asked[setting] += 1
        alone, crowd = self.generator.lognormal(0, 0.05, 2)
        return TuneRound(alone_ns=(int(4e6 * alone),), crowd_answers=int(1e4 * crowd), crowd_elapsed_ns=10**10)


def test_noise_alone_hardly_ever_changes_a_setting() -> None:
    tunings = [searched(Noise(seed))[1] for seed in range(60)]
    assert sum(tuning.chosen != PRESENT for tuning in tunings) <= 3
    assert sum("fresh rounds" in tuning.reason for tuning in tunings) >= 12, "luck alone had chosen many"


def test_a_change_is_confirmed_beside_the_present_setting_in_rounds_that_did_not_choose_it() -> None:
    _, tuning = searched(Machine())
    assert "as good in 6 fresh rounds" in tuning.reason
    assert len(tuning.of(tuning.chosen).rounds) > 6


def test_a_setting_that_changes_answers_is_rejected_whatever_its_speed() -> None:
    _, tuning = searched(Machine())
    rejected = [tried for tried in tuning.tried if tried.verdict == "rejected"]
    assert rejected and all("not what was proven" in tried.reason for tried in rejected)
    assert not {tried.setting for tried in rejected} & set(tuning.measured)


def test_the_present_setting_stays_when_nothing_is_worth_a_change() -> None:
    _, tuning = searched(Machine(), objective="latency")
    assert tuning.chosen == PRESENT
    assert tuning.reason.startswith("The present setting stays")
    assert tuning.of(PRESENT).verdict == "chosen"


def test_a_budget_that_ends_at_first_sight_changes_nothing() -> None:
    machine = Machine()
    search, tuning = searched(machine, budget_s=0.0)
    assert (search.cut, sum(machine.asked.values()), tuning.chosen) == (True, 1, PRESENT)
    assert "was measured twice in 0 s" in tuning.reason


def test_a_present_setting_that_changes_answers_ends_the_search() -> None:
    machine = Machine()
    with SilentProgress().stage("tune") as step:
        search = Search(
            present=PRESENT.model_copy(update={"stretch": 1.5}),
            objective="balanced",
            measure=machine.measure,
            forget=machine.forgotten.append,
            step=step,
            budget_s=60.0,
            glance_s=0.1,
        )
        with pytest.raises(QualityError):
            search.begin()


def test_only_what_was_proven_is_tried() -> None:
    small = PRESENT.model_copy(update={"rows_a_call": 4})
    assert {setting.rows_a_call for setting in groupings(PRESENT, 32, "alone")} == {1}
    assert {setting.stretch for setting in groupings(PRESENT, 32, "equal-length")} == {PRESENT.stretch}
    assert max(setting.rows_a_call for setting in groupings(small, 4, "padded")) == 4
    assert all(max(setting.preferred, default=0) <= 4 for setting in waits(PRESENT, 4))


@pytest.mark.parametrize("cpus", [1, 2, 3, 8, 64])
def test_shapes_use_the_cpus_that_are_there(cpus: int) -> None:
    found = [(setting.instances, setting.threads) for setting in shapes(PRESENT, cpus)]
    assert (1, cpus) in found
    assert all(threads <= cpus and instances * threads <= 2 * cpus for instances, threads in found)
    assert len(found) <= 21


def test_the_front_is_what_no_other_beats_in_both() -> None:
    names = [PRESENT.model_copy(update={"delay_us": n}) for n in range(4)]
    figures = [(1.0, 10.0), (2.0, 20.0), (2.0, 15.0), (3.0, 18.0)]
    found = {name: Figures(alone_s=a, crowd_per_s=b) for name, (a, b) in zip(names, figures, strict=True)}
    assert front(found) == names[:2]
    assert gain(found[names[1]], found[names[0]], "balanced") == pytest.approx(1.0)


def test_rows_share_a_call_while_the_longest_is_at_most_so_much_longer() -> None:
    lengths = [10, 11, 13, 20]
    assert list(groups_of(lengths, "padded", 8, 1.3)) == [[0, 1], [2], [3]]
    assert list(groups_of(lengths, "padded", 3, 1.3)) == [[0, 1, 2], [3]]
    assert list(groups_of(lengths, "padded", 2, 1.3)) == [[0, 1], [2], [3]]
    assert list(groups_of(lengths, "equal-length", 8, 1.3)) == [[0], [1], [2], [3]]


def test_the_report_shows_every_setting_and_survives_its_file() -> None:
    _, tuning = searched(Machine())
    assert Tuning.model_validate_json(tuning.to_json()) == tuning
    html, markdown = render_html(tuning), render_markdown(tuning)
    assert html.count("<circle") == len(tuning.measured) + 1
    for tried in tuning.tried:
        assert str(tried.setting) in markdown.replace("\\", "")
    assert html.count("<tr>") == len(tuning.tried) + 1
    assert "Other processes used 25% of the cores during the search" in html
