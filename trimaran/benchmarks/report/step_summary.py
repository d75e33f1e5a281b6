"""The summary page of a GitHub Actions step: Markdown appended to the file that the runner names."""

from __future__ import annotations

import logging
import os
from pathlib import Path

VARIABLE = "GITHUB_STEP_SUMMARY"
# The runner drops the summary of a step whole when it is larger.
LIMIT_BYTES = 1 << 20
_LOG = logging.getLogger(__name__)


def add_to_step_summary(markdown: str) -> Path | None:
    """Appends when the runner's variable is set, and returns the file; what would not fit is left out and said so."""
    named = os.environ.get(VARIABLE)
    if not named:
        return None
    path = Path(named)
    data = f"{markdown.rstrip()}\n\n".encode()
    try:
        written = path.stat().st_size if path.exists() else 0
        if written + len(data) > LIMIT_BYTES:
            data = b"> The report does not fit into the summary of this step; it is among the step's files.\n\n"
        if written + len(data) > LIMIT_BYTES:
            return None
        with path.open("ab") as stream:
            stream.write(data)
    except OSError as error:
        # The report itself is written: a page of the CI is no reason to lose a long run.
        _LOG.warning("The step summary cannot be written to %s: %s.", path, error.strerror)
        return None
    return path
