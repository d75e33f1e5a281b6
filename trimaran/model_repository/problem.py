"""A problem of a repository, and the remedy of each kind of problem."""

from __future__ import annotations

from pathlib import Path

from trimaran.core.spec import Frozen

_LAY_OUT_AGAIN = "Remove this version and lay the artifact out again."
_LAY_MODEL_OUT = "Lay the model out again."
_DEPLOY_AGAIN = "Deploy the model again."
_MEND_STEPS = "Lay the artifact out again, or correct the steps of the ensemble."
# Every code that the check knows. Codes are stable: scripts read them.
REMEDIES = {
    "no-models": "Run `trimaran deploy` first.",
    "unfinished": "Remove it; the next `trimaran deploy` or `serve` does so too.",
    "config-missing": _LAY_MODEL_OUT,
    "config-unreadable": _LAY_MODEL_OUT,
    "name-mismatch": "Rename the folder, or lay the model out under the name you want.",
    "unknown-backend": "Correct the backend, or serve this model elsewhere.",
    "version-missing": _LAY_MODEL_OUT,
    "version-gap": "`trimaran promote` chooses a version that exists.",
    "file-missing": _LAY_OUT_AGAIN,
    "digest-mismatch": f"It was damaged or edited. {_LAY_OUT_AGAIN}",
    "unlisted": "Remove it, or lay the artifact out again if it belongs there.",
    "manifest-unreadable": _LAY_OUT_AGAIN,
    "settings-unreadable": _LAY_OUT_AGAIN,
    "golden-mismatch": _DEPLOY_AGAIN,
    "dims-mismatch": "Lay the artifact out under another name.",
    "batch-mismatch": "Lower max_batch_size, or deploy with a larger --batch.",
    "batching-unproven": "Remove dynamic_batching from this configuration.",
    "labels-mismatch": "Export the model again with a config whose id2label is complete.",
    "prepared-damaged": "Prepare the model again: `trimaran deploy --target`.",
    "foreign-plan": "Build the engine again on this machine.",
    "step-unknown": _MEND_STEPS,
    "step-unmapped": _MEND_STEPS,
    "two-writers": _MEND_STEPS,
}


class Problem(Frozen):
    code: str
    # The file or folder to look at.
    place: Path
    message: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.code}: {self.place}: {self.message} {self.remedy}"


def problem(code: str, place: Path, message: str, *, remedy: str = "") -> Problem:
    """`remedy` replaces the one of the table where more is known."""
    return Problem(code=code, place=place, message=message, remedy=remedy or REMEDIES[code])


def missing(path: Path, reason: str) -> Problem:
    return problem("file-missing", path, f"wanted this file, found none: {reason}")
