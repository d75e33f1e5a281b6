"""How a candidate ends: `Proven | Rejected | Failed | Stopped`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trimaran.benchmarks.report.wording import broken_words
from trimaran.core.artifact import Artifact
from trimaran.core.errors import TrimaranError
from trimaran.judging.judgement import Quality
from trimaran.quantize.candidates import Contestant


@dataclass(frozen=True)
class _Judged:
    candidate: Contestant
    artifact: Artifact
    quality: Quality
    # Environment variables that the candidate needs on this machine; without them it dies of SIGILL.
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Proven(_Judged):
    """Every gate is proven, and it competes."""


@dataclass(frozen=True)
class Rejected(_Judged):
    """It breaks at least one gate, or the texts do not prove one. It is measured briefly, for the report alone."""


@dataclass(frozen=True)
class Failed:
    """It could not be made or judged."""

    candidate: Contestant
    error: TrimaranError


@dataclass(frozen=True)
class Stopped:
    """It was not made or not judged, because it could not have won."""

    candidate: Contestant
    reason: str


Judged = Proven | Rejected
CandidateOutcome = Proven | Rejected | Failed | Stopped


def judged(
    candidate: Contestant, artifact: Artifact, quality: Quality, environment: Mapping[str, str] | None = None
) -> Judged:
    """The outcome of a candidate that runs, by its quality."""
    kind = Proven if quality.holds else Rejected
    return kind(candidate, artifact, quality, environment or {})


def outcome_words(outcome: CandidateOutcome) -> str:
    """One line for the progress display."""
    match outcome:
        case Proven():
            return "keeps its gates"
        case Rejected(quality=quality):
            proven = "not proven" if all(check.verdict == "not proven" for check in quality.broken) else "rejected"
            return f"{proven}: {'; '.join(map(broken_words, quality.broken))}"
        case Failed(error=error):
            return f"failed: {error}"
        case Stopped(reason=reason):
            return f"stopped: {reason}"
