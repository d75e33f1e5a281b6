"""The report of a student that learnt its teacher's answers, and its model card."""

from __future__ import annotations

from typing import ClassVar, Literal

from trimaran.core.tasks import task
from trimaran.judging.gate_check import GateCheck
from trimaran.judging.judgement import KindQuality
from trimaran.judging.labelled import DataScore
from trimaran.pipeline.student_folder import StudentReport

DISTILLED_REPORT = "distilled.json"


class DistilledReport(StudentReport):
    """`distilled.json`: what the student is, how it learnt, and how true it is to its teacher."""

    what: ClassVar[str] = "report of a distilled model"

    task: str
    # The gates of `checks`: looser than those of a deployment, and against the teacher.
    level: Literal["distilled"] = "distilled"
    # Some of the teacher's layers, or a BiLSTM with its tokens.
    student: Literal["layers", "bilstm"] = "layers"
    layers_before: int
    # The teacher's layers that stayed, counted from 0; none in a BiLSTM.
    layers: tuple[int, ...] = ()
    # Texts that were learnt, that chose layers and the end of learning, and that judged.
    texts_learnt: int
    texts_choosing: int
    texts_judging: int
    steps: int
    epochs: float
    # Of all sessions of the run, from the first text to the written folder: by the clock, and of the CPU.
    seconds: float
    cpu_seconds: float
    # The task's own distance to the teacher on the choosing texts: before learning, and after it.
    distance_before: float
    distance_after: float
    # On the judging texts, against the teacher, with 95 % intervals of the metrics that are means.
    metrics: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    checks: tuple[GateCheck, ...]
    # By file of texts.
    kinds: tuple[KindQuality, ...]
    # On the user's labelled data; `eager` is the teacher's figure.
    data: DataScore | None = None

    @property
    def holds(self) -> bool:
        return all(check.holds for check in self.checks)

    @property
    def headline(self) -> str:
        on_data = ""
        if self.data is not None:
            share = f", {self.data.value / self.data.eager:.1%} of the teacher's" if self.data.eager > 0 else ""
            on_data = f" On {self.data.n:,} labelled items {self.data.metric} is {self.data.value:.4f} after "
            on_data += f"{self.data.eager:.4f}{share}."
        return (
            f"{self._became}, {self.bytes_before / 1e6:.1f} MB became {self.bytes_after / 1e6:.1f} MB, "
            f"in {self.seconds / 60:.1f} minutes. {self.verdict}{on_data}"
        )

    @property
    def kept_layers(self) -> str:
        """Counted from 1."""
        return ", ".join(str(layer + 1) for layer in self.layers)

    @property
    def _became(self) -> str:
        if self.student == "bilstm":
            return f"{self.layers_before} layers became a BiLSTM"
        return f"{self.layers_before} layers became {len(self.layers)} (the teacher's {self.kept_layers})"

    @property
    def verdict(self) -> str:
        figures = "; ".join(f"{_title(self.task, check.name)} {_short(check.observed)}" for check in self.checks)
        against = f"Against the teacher on {self.texts_judging:,} held-out texts: {figures}."
        if self.holds:
            return f"{against} It keeps the level `distilled`."
        failed = "; ".join(
            " ".join((_title(self.task, check.name), "is", check.verdict or "", check.kind, check.needs_words)).strip()
            for check in self.checks
            if not check.holds
        )
        return f"{against} It does not keep the level `distilled`: {failed}."


def card(report: DistilledReport) -> str:
    """README.md of the student's folder."""
    rows = [
        f"| {_title(report.task, check.name)} | {_short(check.observed)} | {_interval(report, check.name)} | "
        f"{'≤' if check.comparison == '<=' else '≥'} {check.limit:g} | {check.verdict} | {check.kind or 'all'} |"
        for check in report.checks
    ]
    names = [check.name for check in report.checks if not check.kind]
    kinds = [
        f"| {kind.kind} | {kind.n:,} | {' | '.join(_short(kind.metrics[name]) for name in names)} |"
        for kind in report.kinds
    ]
    title, began = _origin(report)
    lines = [
        f"# {report.teacher}, {title}",
        "",
        report.headline,
        "",
        f"{began} It learnt the teacher's answers to {report.texts_learnt:,} texts "
        f"({report.epochs:.1f} epochs, {report.steps:,} steps); {report.texts_choosing:,} others decided when to stop. "
        f"On those its distance to the teacher fell from {report.distance_before:.4f} to {report.distance_after:.4f}.",
        "",
        f"## Against the teacher, at the level `{report.level}`",
        f"On {report.texts_judging:,} texts that decided nothing before. The level is looser than those of a",
        "deployment: a student is another model, and only its own figures say whether it will do.",
        "",
        "| metric | value | 95 % interval | limit | verdict | texts |",
        "|---|---|---|---|---|---|",
        *rows,
        "",
        f"| texts | n | {' | '.join(_title(report.task, name) for name in names)} |",
        f"|---|---|{'---|' * len(names)}",
        *kinds,
        "",
        f"Made by trimaran {report.trimaran}; the figures are in `{DISTILLED_REPORT}`. Deploy it as any model: "
        "`trimaran deploy -m FOLDER`.",
        "",
    ]
    return "\n".join(lines)


def _origin(report: DistilledReport) -> tuple[str, str]:
    """What the student is, for the heading, and what it began as."""
    if report.student == "bilstm":
        began = "The student is a BiLSTM. Its token table is the teacher's, by principal components; all else is new."
        return "as a BiLSTM", began
    began = f"The student began as the teacher's layers {report.kept_layers}, which were found by trial."
    return f"with {len(report.layers)} of its {report.layers_before} layers", began


def _title(task_name: str, metric_name: str) -> str:
    metric = task(task_name).metric(metric_name)
    return metric.words[0] if metric else metric_name


def _short(value: float | int | str) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _interval(report: DistilledReport, name: str) -> str:
    low, high = report.intervals.get(name, (None, None))
    return f"{low:.4g} to {high:.4g}" if low is not None and high is not None else ""
