"""The texts that calibrate and judge: the corpus shipped with the package, or the user's own file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Literal

from trimaran.artifact import Artifact, digest_of
from trimaran.errors import UsageError
from trimaran.runtime.text import Text, TextEncoder

Part = Literal["calibration", "judging"]
FEWEST = 16


def shipped_texts(part: Part) -> tuple[str, ...]:
    """Single texts of one half of the shipped corpus; no text is in both halves."""
    return tuple(row["text"] for row in _shipped_rows(part))


def shipped_pairs(part: Part) -> tuple[tuple[str, str], ...]:
    return tuple((row["text"], row["pair"]) for row in _shipped_rows(part) if row["pair"])


def read_texts(path: Path) -> tuple[str, ...]:
    """One text a line. Too few, empty, or not UTF-8 is refused, because it would calibrate to nonsense."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise UsageError(f"The text file {path} cannot be read: {error.strerror}.") from error
    try:
        decoded = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path} is not UTF-8 text (byte {error.start}).", hint="Give a text file with one text a line."
        ) from error
    if "\0" in decoded:
        raise UsageError(f"{path} is a binary file.", hint="Give a text file with one text a line.")
    texts = tuple(dict.fromkeys(line.strip() for line in decoded.splitlines() if line.strip()))
    if len(texts) < FEWEST:
        raise UsageError(
            f"{path} has {len(texts)} different texts; at least {FEWEST} are wanted.",
            hint="A few hundred lines of the text that the model will see are best.",
        )
    return texts


def read_pairs(path: Path) -> tuple[tuple[str, str], ...]:
    """One pair a line, parted by `|||`: a context and its question, a document and its query, two sentences."""
    pairs = []
    for line in read_texts(path):
        first, mark, second = line.partition("|||")
        if not (mark and first.strip() and second.strip()):
            raise UsageError(
                f"{path} has a line without a second text: {line[:40]!r}.",
                hint="This task reads two texts: write `first ||| second` on each line.",
            )
        pairs.append((first.strip(), second.strip()))
    return tuple(pairs)


def digest_of_texts(texts: Sequence[Text]) -> str:
    return digest_of([list(text) if isinstance(text, tuple) else text for text in texts])


def encoder_of(artifact: Artifact) -> TextEncoder:
    """How this artifact reads text: its own tokenizer, cut at the longest sequence of its profile."""
    spec = artifact.tokenizer
    return TextEncoder(
        str(artifact.directory / "tokenizer.json"),
        inputs=spec.inputs,
        minimum=artifact.profile.sequence.minimum,
        maximum=artifact.profile.sequence.maximum,
        pad_id=spec.pad_id,
        pad_type_id=spec.pad_type_id,
        pad_side=spec.pad_side,
    )


def _shipped_rows(part: Part) -> list[dict[str, str]]:
    text = resources.files("trimaran").joinpath("texts", f"{part}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines() if line.strip()]
