"""Asks a model's own library the same texts as our eager text path, in one process, and compares token by token.

The library is loaded on the user's folder as its documentation says. Both sides compute in fp32 with the same weights,
so that answers differ by rounding only. A larger difference means that we read the folder differently.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trimaran.core.artifact import Artifact, load_artifact
from trimaran.core.backends import open_session
from trimaran.core.corpus import answering_of
from trimaran.core.environment import version_of
from trimaran.core.errors import first_line
from trimaran.core.families import STATIC, family
from trimaran.core.spec import Frozen, ModelRef, Pooling
from trimaran.core.tasks import task
from trimaran.core.tasks.library import Library, Plain
from trimaran.core.tasks.task import RequestRow
from trimaran.export.library_causes import BothAnswers, Difference, FedRow, first_difference
from trimaran.export.quiet import quiet
from trimaran.export.reference import model_ref_of
from trimaran.export.sentence import MODES_BY_NAME, pooling_of, sentence_modules
from trimaran.runtime.answers import Reader
from trimaran.runtime.text import Array

# Letters of a text that an error shows.
_SHOWN = 60


class LibraryCheck(Frozen):
    """What the model's own library answered, held against our eager text path."""

    # The library with its version and the class or pipeline that was asked; empty if it could not be asked.
    library: str
    # Requests that both sides answered, and requests on which the library itself raised an error.
    compared: int
    refused: int
    # The largest difference of a number, relative to the largest number of the answer where that is above 1.
    largest: float
    # Whether the numbers were compared; otherwise the tokens only.
    numbers: bool = True
    # Why the library could not be asked; eager PyTorch is the reference then.
    unable: str = ""
    # The first difference beyond rounding, in sentences.
    difference: str = ""
    # Its likely cause in a few words, such as "length".
    cause: str = ""


def compare_with_library(
    directory: str, rows: Sequence[RequestRow], maximum: int | None, threads: int
) -> dict[str, Any]:
    """In the child: a `LibraryCheck` as JSON. `directory` is a reference artifact.

    `maximum` takes the place of the library's own limit of tokens, where the deployment was asked for another.
    """
    import torch

    artifact = load_artifact(Path(directory))
    ref = model_ref_of(artifact)
    row = task(ref.task).library_of(ref)
    torch.set_num_threads(threads)
    try:
        with quiet():
            loaded = load_library(ref, row, maximum or 0)
    except Exception as error:  # libraries raise many unrelated classes for a folder that they cannot load
        unable = f"the library cannot load the folder: {first_line(error)}"
        return LibraryCheck(library="", compared=0, refused=0, largest=0.0, unable=unable).model_dump()
    theirs = Recorded(lambda item, options: row.ask(loaded, item, **options))
    _record_calls(loaded, theirs.fed)
    with open_session(artifact, threads=threads) as session, torch.inference_mode(), quiet():
        hidden = ref.multi_vector.hidden_id if ref.multi_vector else None
        check = _compare(ref, row, rows, _ours(artifact, session.infer, hidden), theirs)
    return check.model_copy(update={"library": "" if check.unable else _name(row)}).model_dump()


class Recorded:
    """A side that answers, with the rows of tokens that its model was fed for the last answer."""

    def __init__(self, answer: Callable[[Any, Mapping[str, Any]], Any]) -> None:
        self._answer = answer
        self.fed: list[FedRow] = []

    def __call__(self, item: Any, options: Mapping[str, Any]) -> Any:
        self.fed.clear()
        return self._answer(item, options)


def _compare(
    ref: ModelRef,
    row: Library,
    rows: Sequence[RequestRow],
    ours: tuple[Recorded, Reader, int],
    theirs: Recorded,
) -> LibraryCheck:
    mine, reader, maximum = ours
    with_numbers = ref.pooling is None or not _changed(ref)
    compared, refused, largest, error_of_library = 0, 0, 0.0, ""
    for request in rows:
        item, options = task(ref.task).served.question(request)
        try:
            wanted = theirs(item, options)
        except Exception as error:  # such as an empty text for a decoder, or a fill-mask text whose mask was cut
            refused, error_of_library = refused + 1, error_of_library or first_line(error)
            continue
        try:
            answer = mine(item, options)
        except Exception as error:  # the library has answered, so any failure of ours is a difference
            difference = Difference(
                float("inf"), f"the library answers, and we fail: {first_line(error)}", "our answers"
            )
        else:
            sides = BothAnswers(row, answer, wanted, tuple(mine.fed), tuple(theirs.fed), reader, maximum)
            difference = first_difference(sides, with_numbers=with_numbers)
        compared += 1
        largest = max(largest, difference.size)
        if difference.words:
            words = f"{_shown(request)}: {difference.words}"
            return LibraryCheck(
                library="", compared=compared, refused=refused, largest=largest, difference=words,
                cause=difference.cause,
            )  # fmt: skip
    unable = "" if compared else f"the library itself fails on every text: {error_of_library}"
    return LibraryCheck(
        library="", compared=compared, refused=refused, largest=largest, numbers=with_numbers, unable=unable
    )


def _ours(artifact: Artifact, infer: Callable[[Mapping[str, Array]], Mapping[str, Array]], hidden: int | None) -> Any:
    served = task(artifact.task).served

    def fed_and_answered(inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        recorded.fed.extend(_without_end(row, hidden) for row in _rows_of(inputs))
        return infer(inputs)

    answering = answering_of(artifact, fed_and_answered)
    recorded = Recorded(lambda item, options: served.answer(answering, [item], **options)[0])
    return recorded, answering.reader, artifact.profile.sequence.maximum


def load_library(ref: ModelRef, row: Library, maximum: int) -> Any:
    """The library's own object for the task. `maximum` is a limit of tokens to set, 0 to leave its own."""
    import torch
    import transformers

    if row.sentence:
        model = _sentence_model(ref, row.sentence)
        if ref.family == STATIC.name:
            if maximum:
                model[0].tokenizer.enable_truncation(maximum)
            return model.float()
        # Without a limit of its own it would give the model more tokens than it has positions.
        if maximum or (model.max_seq_length or 0) > ref.positions:
            model.max_seq_length = maximum or ref.positions
        if ref.multi_vector and maximum:
            # Documents have a limit of their own there, which would come before the other.
            model[0].document_length = min(model[0].document_length or maximum, maximum)
        return model
    head = task(ref.task).model_class
    kind = getattr(transformers, family(ref.family).classes.get(head, head))
    model = kind.from_pretrained(ref.directory, dtype=torch.float32, local_files_only=True, trust_remote_code=False)
    tokenizer = transformers.AutoTokenizer.from_pretrained(
        ref.directory, local_files_only=True, trust_remote_code=False
    )
    if maximum or tokenizer.model_max_length > ref.positions:
        tokenizer.model_max_length = maximum or ref.positions
    if row.pipeline:
        return transformers.pipeline(row.pipeline, model=model.eval(), tokenizer=tokenizer, device="cpu")
    return Plain(tokenizer, model.eval())


def _sentence_model(ref: ModelRef, kind: str) -> Any:
    """sentence-transformers on the folder. A plain folder gets the pooling that the deployment assumes and says."""
    import sentence_transformers
    import torch

    keywords: dict[str, Any] = {"device": "cpu", "local_files_only": True, "trust_remote_code": False}
    in_float = {"model_kwargs": {"dtype": torch.float32}}
    if ref.pooling is None or sentence_modules(Path(ref.root)):
        if ref.pooling and ref.pooling.dimensions:
            keywords["truncate_dim"] = ref.pooling.dimensions
        model = getattr(sentence_transformers, kind)(ref.root, **keywords, **in_float)
        return _then_normalized(model) if ref.pooling and ref.pooling.dimensions and ref.pooling.normalize else model
    parts = importlib.import_module("sentence_transformers.sentence_transformer.modules")
    modules = [
        parts.Transformer(ref.directory, model_kwargs={"dtype": torch.float32}),
        parts.Pooling(ref.hidden, pooling_mode=MODES_BY_NAME[ref.pooling.mode]),
        *([parts.Normalize()] if ref.pooling.normalize else []),
    ]
    return sentence_transformers.SentenceTransformer(modules=modules, device="cpu")


def _then_normalized(model: Any) -> Any:
    """Cut vectors are scaled to unit length again, which `encode` does when it is asked to."""
    encode = model.encode
    model.encode = lambda *texts, **options: encode(*texts, normalize_embeddings=True, **options)
    return model


def _changed(ref: ModelRef) -> bool:
    """Whether the user asked for vectors that sentence-transformers cannot make of this folder."""
    pooling = ref.pooling or Pooling()
    modules = sentence_modules(Path(ref.root))
    own = (
        pooling_of(Path(ref.root), modules, pooling.mode)
        if modules
        else Pooling(mode=pooling.mode, normalize=pooling.normalize)
    )
    stated = pooling.model_copy(update={"dimensions": own.dimensions})
    return stated != own or (pooling.dimensions is not None and not modules)


def _record_calls(loaded: Any, fed: list[FedRow]) -> None:
    """Every call of the library's transformers model leaves the rows of tokens that it was given."""
    import torch
    import transformers

    model = getattr(loaded, "model", None)
    if not isinstance(model, transformers.PreTrainedModel):
        parts = loaded.modules()
        model = next((part for part in parts if isinstance(part, transformers.PreTrainedModel)), None)
    if model is None:
        _record_tables(loaded[0], fed)
        return
    forward = model.forward

    # Not a hook: sentence-transformers calls `forward` itself, which runs none.
    @functools.wraps(forward)
    def recorded(*arguments: Any, **keywords: Any) -> Any:
        named = dict(zip(("input_ids",), arguments, strict=False)) | keywords
        arrays = {name: value.cpu().numpy() for name, value in named.items() if isinstance(value, torch.Tensor)}
        fed.extend(_rows_of({name: value.reshape(-1, value.shape[-1]) for name, value in arrays.items()}))
        return forward(*arguments, **keywords)

    model.forward = recorded


def _record_tables(table: Any, fed: list[FedRow]) -> None:
    """A StaticEmbedding is given the tokens of all texts in one row, with where each text begins."""
    forward = table.forward

    def recorded(features: Mapping[str, Any], **keywords: Any) -> Any:
        texts = np.split(features["input_ids"].numpy(), features["offsets"].numpy()[1:])
        fed.extend(FedRow(tuple(int(token) for token in text), None) for text in texts)
        return forward(features, **keywords)

    table.forward = recorded


def _without_end(row: FedRow, hidden: int | None) -> FedRow:
    """The row without the run of hidden tokens at its end: our graphs find it themselves."""
    size = len(row.tokens)
    while hidden is not None and size and row.tokens[size - 1] == hidden:
        size -= 1
    return FedRow(row.tokens[:size], row.segments and row.segments[:size])


def _rows_of(inputs: Mapping[str, Array]) -> list[FedRow]:
    """The tokens and segments of each row of a call, without padding."""
    ids = inputs["input_ids"]
    kept = inputs.get("attention_mask", np.ones_like(ids)).astype(bool)
    types = inputs.get("token_type_ids")
    return [
        FedRow(
            tuple(int(token) for token in ids[index][kept[index]]),
            None if types is None else tuple(int(kind) for kind in types[index][kept[index]]),
        )
        for index in range(len(ids))
    ]


def _shown(request: RequestRow) -> str:
    """A request in a few words."""
    parts = []
    for name, value in request.items():
        text = value if isinstance(value, str) else " | ".join(value)
        if text or name != "OPTIONS":
            length = f" ({len(text)} characters)" if len(text) > _SHOWN else ""
            parts.append(f"{name} {text[:_SHOWN]!r}{length}")
    return ", ".join(parts)


def _name(row: Library) -> str:
    if row.sentence:
        return f"sentence-transformers {version_of('sentence-transformers')} ({row.sentence})"
    how = f"pipeline {row.pipeline}" if row.pipeline else "tokenizer and model"
    return f"transformers {version_of('transformers')} ({how})"
