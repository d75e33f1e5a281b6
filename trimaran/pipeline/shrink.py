"""`trimaran shrink`: a smaller model as an ordinary model folder, with what was proven of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from trimaran.core.corpus import all_texts
from trimaran.core.errors import IntegrityError, UsageError
from trimaran.core.progress import Progress
from trimaran.core.spec import ModelRef
from trimaran.core.store import publish, temporary_sibling
from trimaran.export.load import load_model, load_tokenizer
from trimaran.export.locate import locate
from trimaran.pipeline.student_folder import CARD, StudentReport, common_facts, copy_rest, free_folder, weight_bytes
from trimaran.shrink.tokenizer_json import kept_ids
from trimaran.shrink.vocabulary import coverage, ids_of, with_rows, write_tokenizer

if TYPE_CHECKING:
    import torch

REPORT = "shrink.json"
# Texts whose numbers are compared, spread over all that were given.
_COMPARED = 64
# A head over the vocabulary sums in another order when it is narrower.
_FLOAT_NOISE = 1e-5


class VocabularyReport(StudentReport):
    """`shrink.json`: what was left out of the vocabulary, and what was proven of the rest."""

    what: ClassVar[str] = "report of a shrunk model"

    tokens_before: int
    tokens_after: int
    # Those of them that the texts use; the others stay so that every text can be read. None in older files.
    tokens_of_texts: int | None = None
    # Texts that said which tokens stay, with every prompt of the model. All of them are read as before.
    texts: int
    # The share of tokens of an unseen text that would be read as before, estimated by holding out every tenth text.
    coverage: float
    # Texts whose numbers were compared with the teacher's, and the largest difference; 0 is the same to the last bit.
    compared: int
    largest_difference: float

    @property
    def headline(self) -> str:
        same = "the same to the last bit" if self.largest_difference == 0 else f"within {self.largest_difference:.1e}"
        return (
            f"{self.tokens_before:,} tokens became {self.tokens_after:,}, {self.bytes_before / 1e6:.1f} MB became "
            f"{self.bytes_after / 1e6:.1f} MB. All {self.texts:,} texts have the same tokens, and the numbers of "
            f"{self.compared} of them are {same}. Of other texts like these about {self.coverage:.2%} of the tokens "
            "stay as they were."
        )


def shrink_vocabulary(
    model: str, text_files: Sequence[Path], output: Path, *, task_name: str = "auto", progress: Progress
) -> VocabularyReport:
    """Writes the model with only the tokens that the texts need, as a folder that is written whole or not at all.

    Raises UsageError for a model whose answers are numbered by token, and IntegrityError if a text is read otherwise
    than before.
    """
    output = free_folder(output)
    ref = locate(model, task_name=task_name)
    if ref.task in ("sparse-embedding", "hybrid-embedding"):
        raise UsageError(
            f"The vectors of {model} have one number for each token: with fewer tokens they would mean something else.",
            hint="Only models whose answers do not name tokens by number can be trimmed.",
        )
    # With a prompt before it, the first word of a text may become another token.
    texts = [f"{prompt}{text}" for prompt in ("", *ref.prompts.values()) for text in all_texts(text_files)]
    with progress.stage("tokens") as step:
        tokenizer = load_tokenizer(ref)
        ids = list(ids_of(tokenizer, texts))
        whole = _tokenizer_json(tokenizer)
        pad_id = int(tokenizer.pad_token_id or 0)
        used = {token for row in ids for token in row}
        kept = kept_ids(whole, used, pad_id=pad_id)
        covered = coverage(ids, kept_ids(whole, (), pad_id=pad_id))
        step.outcome(f"{len(kept):,} of {ref.vocabulary:,} stay")
    with temporary_sibling(output) as folder:
        with progress.stage("write") as step:
            body = copy_rest(ref, folder)
            teacher = load_model(ref, attention="eager", dtype="auto")
            with_rows(teacher, kept).save_pretrained(body)
            write_tokenizer(tokenizer, kept, body)
            size = weight_bytes(body)
            step.outcome(f"{size / 1e6:.1f} MB")
        with progress.stage("prove") as step:
            student = locate(str(folder), task_name=ref.task)
            _require_same_tokens(student, texts, ids, kept)
            chosen = texts[:: max(1, len(texts) // _COMPARED)][:_COMPARED]
            largest = _largest_difference(ref, student, chosen, kept)
            step.outcome(f"{len(texts):,} texts have the same tokens, max |Δ| {largest:.1e}")
        report = VocabularyReport(
            **common_facts(ref, size),
            tokens_before=ref.vocabulary,
            tokens_after=len(kept),
            tokens_of_texts=len(used),
            texts=len(texts),
            coverage=covered,
            compared=len(chosen),
            largest_difference=largest,
        )
        (folder / REPORT).write_text(report.to_json(), encoding="utf-8")
        (folder / CARD).write_text(_card(report), encoding="utf-8")
        publish(folder, output)
    return report


def _tokenizer_json(tokenizer: Any) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(tokenizer.backend_tokenizer.to_str())
    return content


def _require_same_tokens(
    student: ModelRef, texts: Sequence[str], before: Sequence[Sequence[int]], kept: Sequence[int]
) -> None:
    for text, old, new in zip(texts, before, ids_of(load_tokenizer(student), texts), strict=True):
        if [kept[token] for token in new] != list(old):
            raise IntegrityError(
                f"The trimmed tokenizer reads {text[:80]!r} otherwise than the whole one.",
                hint="This tokenizer cannot be trimmed; please report the model's kind of tokenizer.",
            )


def _largest_difference(ref: ModelRef, student: ModelRef, texts: Sequence[str], kept: Sequence[int]) -> float:
    """Between the outputs of both models, each text alone. Raises IntegrityError above float noise."""
    import torch

    before, after = (_outputs(each, texts) for each in (ref, student))
    largest = 0.0
    for text, old, new in zip(texts, before, after, strict=True):
        wanted = old if old.shape == new.shape else old.index_select(-1, torch.tensor(list(kept)))
        difference = float((wanted - new).abs().max())
        if not difference <= _FLOAT_NOISE * max(1.0, float(wanted.abs().max())):
            raise IntegrityError(f"The numbers of {text[:80]!r} differ from the teacher's by {difference:.2e}.")
        largest = max(largest, difference)
    return largest


def _outputs(ref: ModelRef, texts: Sequence[str]) -> list[torch.Tensor]:
    """The first output of the model for each text, in fp32."""
    import torch

    model, tokenizer = load_model(ref, attention="eager"), load_tokenizer(ref)
    with torch.inference_mode():
        return [
            model(**tokenizer(text, truncation=True, max_length=min(ref.positions, 512), return_tensors="pt"))[0]
            for text in texts
        ]


def _card(report: VocabularyReport) -> str:
    return (
        f"# {report.teacher}, with {report.tokens_after:,} of its {report.tokens_before:,} tokens\n\n"
        f"{report.headline}\n\n"
        "Single characters and bytes stayed, so every text can be read. A text with words that were left out is cut "
        "into smaller parts, and its answer moves.\n\n"
        f"Made by trimaran {report.trimaran}; the figures are in `{REPORT}`. Deploy it as any model: "
        "`trimaran deploy -m FOLDER`.\n"
    )
