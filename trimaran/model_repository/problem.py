"""One problem of a repository."""

from __future__ import annotations

from pathlib import Path

from trimaran.core.spec import Frozen

LAY_OUT_AGAIN = "Remove this version and lay the artifact out again."


class Problem(Frozen):
    """`code` is stable and meant for scripts; `place` is the file or folder to look at."""

    code: str
    place: Path
    message: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.code}: {self.place}: {self.message} {self.remedy}"


def missing(path: Path, reason: str) -> Problem:
    return Problem(
        code="file-missing", place=path, message=f"wanted this file, found none: {reason}", remedy=LAY_OUT_AGAIN
    )
