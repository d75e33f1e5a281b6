"""The texts that calibrate and judge: the corpus shipped with the package, or the user's own file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Literal, TypeVar

from trimaran.core.artifact import Artifact, digest_of
from trimaran.core.errors import UsageError
from trimaran.core.tables import SECOND, TEXT, read_table
from trimaran.core.tasks.task import AnswerContext
from trimaran.runtime.answers import Answering, Reader
from trimaran.runtime.text import Infer, Text, TextEncoder

# `names` judges, too, where only texts with entities speak.
Part = Literal["calibration", "judging", "names"]
Given = TypeVar("Given", bound=Text)
Item = TypeVar("Item")
FEWEST = 16
# The kind of a text that is not of the shipped corpus.
OWN_KIND = "your texts"
FEWEST_WORDS, FEWEST_DIFFERENT_WORDS = 100, 40


def shipped_texts(part: Part) -> tuple[str, ...]:
    """Single texts of one part of the shipped corpus; no text is in two parts."""
    return tuple(row["text"] for row in _shipped_rows(part))


def shipped_pairs(part: Part) -> tuple[tuple[str, str], ...]:
    return tuple((row["text"], row["pair"]) for row in _shipped_rows(part) if row["pair"])


def kinds_of(texts: Sequence[Text]) -> tuple[str, ...]:
    """Return the kind of each text: that of the shipped corpus (such as `headline`), or `OWN_KIND`.

    A pair has the kind of the shipped text that either side is. Sides that a task adds, such as the hypotheses of
    zero-shot classification, are not from the corpus.
    """
    known = _shipped_kinds()
    sides = [(text,) if isinstance(text, str) else text for text in texts]
    return tuple(next((known[side] for side in both if side in known), OWN_KIND) for both in sides)


def readable_texts(texts: Sequence[Text], tokenizer_file: Path) -> tuple[Text, ...]:
    """Return the texts that the tokenizer can read: at most half of their tokens are unknown to it.

    All texts in a script that the model never saw become the same few unknown tokens. Nothing is learnt from them.
    """
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    model = json.loads(tokenizer.to_str())["model"]
    unknown = tokenizer.token_to_id(model["unk_token"]) if model.get("unk_token") else model.get("unk_id")
    if unknown is None:
        return tuple(texts)
    encodings = tokenizer.encode_batch(list(texts))
    return tuple(
        text
        for text, encoding in zip(texts, encodings, strict=True)
        if 2 * encoding.ids.count(unknown) <= len(encoding.ids) - sum(encoding.special_tokens_mask)
    )


def read_texts(path: Path) -> tuple[str, ...]:
    """Each text once: the lines of a .txt, or the text column of a .jsonl, .tsv, .csv or .parquet."""
    return _enough(path, _different_texts([path]))


def all_texts(paths: Sequence[Path]) -> tuple[str, ...]:
    """Each text of these files once, however few they are. Raises UsageError if there is none."""
    texts = _different_texts(paths)
    if not texts:
        raise UsageError(f"There is no text in {', '.join(map(str, paths))}.")
    return tuple(texts)


def _different_texts(paths: Sequence[Path]) -> dict[str, None]:
    columns = (read_table(path).column(TEXT, what="texts", place=0) for path in paths)
    return dict.fromkeys(text.strip() for column in columns for text in column if text.strip())


def read_pairs(path: Path) -> tuple[tuple[str, str], ...]:
    """A context and its question, a document and its query, two sentences: `first ||| second` on the lines of a .txt,
    or two columns of any other file.
    """
    table = read_table(path)
    if table.columns == ("text",):
        return tuple(_parted(path, line) for line in read_texts(path))
    firsts = table.column(TEXT, what="first texts", place=0)
    seconds = table.column(SECOND, what="second texts", place=1)
    return _enough(path, dict.fromkeys(pair for pair in zip(firsts, seconds, strict=True) if all(pair)))


def spread(texts: Sequence[Item], most: int) -> tuple[Item, ...]:
    """At most `most` of the texts, evenly spaced over all of them, the same ones every time.

    Files are often sorted (by length, topic or date), so their beginning is not like the rest. Example: 3 of 7 texts
    are the 1st, the 3rd and the 5th.
    """
    count = min(most, len(texts))
    return tuple(texts[index * len(texts) // count] for index in range(count))


def require_useful(texts: Sequence[Text], path: Path) -> None:
    """Refuses texts from which no range of activations can be learnt: too uniform, or too short all together."""
    words = [word for text in texts for word in _words(text)]
    wanted = "A few hundred texts like those that the model will see are best."
    if len(words) < FEWEST_WORDS:
        raise UsageError(
            f"{path} is too short to calibrate on: {len(words)} words in {len(texts)} texts; "
            f"at least {FEWEST_WORDS} are wanted.",
            hint=wanted,
        )
    if len(set(words)) < FEWEST_DIFFERENT_WORDS:
        raise UsageError(
            f"{path} is too uniform to calibrate on: {len(set(words))} different words; "
            f"at least {FEWEST_DIFFERENT_WORDS} are wanted.",
            hint=wanted,
        )


def _words(text: Text) -> list[str]:
    """The words of a text. In a script without spaces, each character counts as one."""
    whole = text if isinstance(text, str) else " ".join(text)
    return re.findall(r"[\u2e80-\u9fff\uac00-\ud7af]|[^\W\u2e80-\u9fff\uac00-\ud7af]+", whole.lower())


def _parted(path: Path, line: str) -> tuple[str, str]:
    first, mark, second = line.partition("|||")
    if not (mark and first.strip() and second.strip()):
        raise UsageError(
            f"{path} has a line without a second text: {line[:40]!r}.",
            hint="This task reads two texts: write `first ||| second` on each line, or give two columns.",
        )
    return first.strip(), second.strip()


def _enough(path: Path, texts: Iterable[Given]) -> tuple[Given, ...]:
    different = tuple(texts)
    if len(different) < FEWEST:
        raise UsageError(
            f"{path} has {len(different)} different texts; at least {FEWEST} are wanted.",
            hint="A few hundred lines of the text that the model will see are best.",
        )
    return different


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
        cut_side=spec.cut_side,
        prompts=spec.prompts,
        default_prompt=spec.default_prompt,
        refused_ids=spec.refused_ids,
        chat=spec.chat.model_dump() if spec.chat else None,
        sides=spec.sides.model_dump() if spec.sides else None,
    )


def answering_of(artifact: Artifact, infer: Infer, *, policy: str = "alone", maximum_batch: int = 1) -> Answering:
    """All that the task of this artifact needs to answer texts with an engine."""
    return Answering(
        infer=infer,
        encoder=encoder_of(artifact),
        reader=Reader(str(artifact.directory / "tokenizer.json")),
        labels=artifact.labels,
        facts=artifact.details.get("answers", {}),
        policy=policy,
        maximum_batch=maximum_batch,
    )


def answer_context(artifact: Artifact) -> AnswerContext:
    """What a task needs to make final answers of this artifact's outputs."""
    reader = Reader(str(artifact.directory / "tokenizer.json"))
    return AnswerContext(encoder_of(artifact), reader, artifact.labels, artifact.details.get("answers", {}))


@cache
def _shipped_kinds() -> dict[str, str]:
    """By text: its kind. Second texts of pairs have the kind of their row."""
    parts: tuple[Part, ...] = ("calibration", "names", "judging")
    rows = [row for part in parts for row in _shipped_rows(part)]
    return {row["pair"]: row["kind"] for row in rows if row["pair"]} | {row["text"]: row["kind"] for row in rows}


def _shipped_rows(part: Part) -> list[dict[str, str]]:
    text = resources.files("trimaran.core").joinpath("texts", f"{part}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines() if line.strip()]
