"""`trimaran look`, from the model and its texts to the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trimaran.core.corpus import all_texts, spread
from trimaran.core.environment import usable_cores
from trimaran.core.errors import UsageError
from trimaran.core.progress import Progress
from trimaran.core.scratch import ScratchFolder
from trimaran.pipeline.local.embedding import EmbeddingModel
from trimaran.pipeline.local.opening import open_source
from trimaran.pipeline.look.inner import InnerStates, inner_states
from trimaran.pipeline.look.neighbours import Neighbour, neighbours
from trimaran.pipeline.look.reading import Reading, TextReader
from trimaran.pipeline.look.subject import Subject, find_subject
from trimaran.runtime.text import Array

MOST_TOKENS = 128
# Texts of --texts beyond this are left out, evenly.
MOST_TEXTS = 2000


@dataclass(frozen=True)
class EngineLook:
    """Where the engine differs from eager PyTorch, for one reading."""

    # [layers + 1, tokens]: the length of the difference, as a share of the length of eager's vector; nan where the
    # engine's graph has no such tensor. None where the engine's layers cannot be read.
    differences: Array | None
    # How far the answer moved, by the task's own distance.
    moved: float


@dataclass(frozen=True)
class Look:
    """All that the page shows."""

    subject: Subject
    readings: list[Reading]
    # One for each reading; empty for a trained model.
    engine: list[EngineLook]
    # For each reading; empty without --texts.
    neighbours: list[list[Neighbour]]
    # How many texts the neighbours are taken from, and how many there were.
    texts: int = 0
    texts_in_file: int = 0


def look(
    model: str,
    texts: Sequence[str],
    *,
    text_file: Path | None = None,
    trained: str | None = None,
    repository: Path = Path("model_repository"),
    store: Path | None = None,
    task_name: str = "auto",
    prompt: str | None = None,
    most_tokens: int = MOST_TOKENS,
    threads: int | None = None,
    progress: Progress,
) -> Look:
    """Reads the texts with the trained model, and with the engine that was made from it, if `model` names one.

    Raises UsageError for a model or texts that cannot be looked at.
    """
    if not 1 <= len(texts) <= 2 or not all(text.strip() for text in texts):
        raise UsageError(
            "One text or two are wanted, none of them empty; found "
            f"{len(texts) if all(text.strip() for text in texts) else 'an empty one'}.",
            hint='trimaran look MODEL "a text" "another text"',
        )
    cores = threads or usable_cores()
    with ScratchFolder("look") as scratch:
        subject = find_subject(
            model,
            most_tokens=most_tokens,
            scratch=Path(scratch),
            task_name=task_name,
            trained=trained,
            repository=repository,
            store=store,
        )
        if text_file and subject.ref.task != "embedding":
            raise UsageError(
                f"--texts shows neighbours of vectors, and {model} is a model for {subject.ref.task}.",
                hint="Leave --texts out.",
            )
        in_file = all_texts([text_file]) if text_file else ()
        chosen = spread(in_file, MOST_TEXTS) if in_file else ()
        # The engine's library reads its settings once, so the engine is opened before anything else uses the library.
        engine_vectors = _engine_vectors(subject, texts, chosen, prompt, cores) if chosen else None
        with progress.stage("read") as step:
            reader = TextReader(subject)
            readings = reader.read(texts, prompt=prompt)
            step.outcome(f"{sum(len(reading.tokens) for reading in readings)} tokens")
        with progress.stage("engine") as step:
            engines = _engine_looks(subject, reader, readings, threads=cores)
            step.outcome(f"{len(engines)} compared" if engines else "none, this is a trained model")
        neighbours: list[list[Neighbour]] = []
        if chosen:
            with progress.stage("neighbours"):
                neighbours = _neighbours(reader, readings, chosen, engine_vectors)
    return Look(subject, readings, engines, neighbours, len(chosen), len(in_file))


def _engine_looks(
    subject: Subject, reader: TextReader, readings: Sequence[Reading], *, threads: int
) -> list[EngineLook]:
    if subject.engine is None or subject.source is None:
        return []
    opened = open_source(subject.source, threads=threads)
    try:
        outputs = [opened.answering.infer(reading.inputs) for reading in readings]
    finally:
        opened.close()
    known = inner_states(subject.engine, readings, threads=threads)
    inner: Sequence[InnerStates | None] = [None] * len(readings) if known is None else known
    return [
        EngineLook(
            _differences(reading, states) if states else None,
            float(np.mean(reader.task.loss.by_text(reading.outputs, answer))),
        )
        for reading, answer, states in zip(readings, outputs, inner, strict=True)
    ]


def _differences(reading: Reading, inner: InnerStates) -> Array:
    absent = np.full(reading.states.shape[1], np.nan)
    return np.stack(
        [
            absent
            if engine_state is None
            else np.linalg.norm(engine_state - state, axis=-1) / np.maximum(np.linalg.norm(state, axis=-1), 1e-12)
            for state, engine_state in zip(reading.states, inner.states, strict=True)
        ]
    )


def _engine_vectors(
    subject: Subject, texts: Sequence[str], others: Sequence[str], prompt: str | None, threads: int
) -> tuple[Array, Array] | None:
    """Of the texts that are looked at, and of those that may be their neighbours."""
    if subject.source is None:
        return None
    with EmbeddingModel(subject.source, threads=threads) as model:
        model.max_seq_length = subject.eager.profile.sequence.maximum
        return np.asarray(model.encode(list(texts), prompt_name=prompt)), np.asarray(model.encode(list(others)))


def _neighbours(
    reader: TextReader, readings: Sequence[Reading], texts: Sequence[str], engine: tuple[Array, Array] | None
) -> list[list[Neighbour]]:
    vectors = reader.vectors(texts)
    [output] = readings[0].outputs
    return [
        neighbours(
            texts,
            (reading.outputs[output][0], vectors),
            (engine[0][index], engine[1]) if engine else None,
        )
        for index, reading in enumerate(readings)
    ]
