"""Files of a few shipped judging texts: a model is judged on them quickly, where judging is not what is tested."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from trimaran.core.corpus import shipped_pairs, shipped_texts

# Of every length. Tests that ask a deployed model for these may hold its answers against what its judgement promises.
ASKED = shipped_texts("judging")[:40]
# Characters.
_SHORT = 80


def judging_pairs(path: Path, *, count: int = 128) -> Path:
    """For `--judging` of any task: those that read single texts read the first text of each pair."""
    return _written(path, ({"text": text, "pair": pair} for text, pair in shipped_pairs("judging")[:count]))


def judging_texts(path: Path, *, count: int) -> Path:
    """For `--judging` of tasks that read single texts. Begins with `ASKED`; the others are short, so that a judgement
    of many texts takes few seconds.
    """
    short = (text for text in shipped_texts("judging") if len(text) <= _SHORT and text not in ASKED)
    return _written(path, ({"text": text} for text in itertools.islice(itertools.chain(ASKED, short), count)))


def _written(path: Path, rows: Iterable[Mapping[str, str]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path
