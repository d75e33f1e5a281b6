"""An open artifact that works through texts: a tokenising thread ahead, and lanes of engines behind it.

The same class works in a child process of the local engine and in a Ray actor, on the same chunks and, where memory
allows, with one engine thread a lane: neither the engine nor the number of cores can then be seen in a vector.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trimaran.bulk.readers import TOO_LONG
from trimaran.core.artifact import Artifact, load_artifact
from trimaran.core.backends import Arrays, backend, open_session
from trimaran.core.corpus import encoder_of
from trimaran.core.errors import UsageError
from trimaran.core.spec import Frozen, Rows
from trimaran.core.tasks import task
from trimaran.runtime.answers import Answering, Reader
from trimaran.runtime.text import Row, Text, TextEncoder, batch_of, groups_of
from trimaran.runtime.wire import PROMPT

Vectors = npt.NDArray[np.float32]
EMBEDDING = "embedding"
# OpenVINO keeps what it prepared for every shape it meets (5,000 of them), and so does oneDNN below it (1,024): about
# half a megabyte a shape. A run meets few shapes (`groups_of`), and these many parts of a graph are more than it needs.
KEPT_KERNELS = 768
ENGINE_ENVIRONMENT = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": str(KEPT_KERNELS)}
# Outputs with an axis of tokens are padded to the longest of a window, so a window is small.
_WINDOW = 128


class How(Frozen):
    """How rows go through the engine, and what is asked of the answers; part of a run's identity."""

    rows: Rows = "alone"
    cut_long: bool = True
    ask: dict[str, Any] = {}


@dataclass
class Encoded:
    """What became of a chunk's texts. `kept` are the indices that have a result, in order; the others are bad."""

    kept: list[int]
    bad: dict[int, str]
    vectors: Vectors | None
    answers: list[Any]
    tokens: int
    cut: int


@dataclass
class _Work:
    texts: Sequence[Text]
    tokens: list[Row] = field(default_factory=list)
    bad: dict[int, str] = field(default_factory=dict)
    cut: int = 0
    vectors: Vectors | None = None
    answers: list[Any] = field(default_factory=list)
    waiting: int = 0
    rows_done: int = 0
    tokens_done: int = 0
    error: BaseException | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)
    done: threading.Event = field(default_factory=threading.Event)


@dataclass
class _Opening:
    """A lane's engine on its way."""

    done: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None


class Worker:
    """`submit` texts under a key, `wait` for them, `take` the result. Safe to call from several threads.

    Engines open in the background, while the first texts are tokenised; `opened` waits for them.
    """

    def __init__(self, directory: str, *, lanes: int, threads: int, how: How) -> None:
        self.artifact = load_artifact(Path(directory))
        # The engine's library and the tokenizer's thread pool read these once, when they are first imported.
        os.environ.update(ENGINE_ENVIRONMENT | self.artifact.execution_environment)
        os.environ.setdefault("RAYON_NUM_THREADS", str(lanes))
        self._how = how
        self._encoder = encoder_of(self.artifact)
        self._works: dict[str, _Work] = {}
        self._submitted: queue.SimpleQueue[_Work] = queue.SimpleQueue()
        self._groups: queue.SimpleQueue[tuple[_Work, list[int]]] = queue.SimpleQueue()
        self._opening = [_Opening() for _ in range(lanes)]
        for opening in self._opening:
            threading.Thread(target=self._lane, args=(lanes, threads, opening), daemon=True).start()
        threading.Thread(target=self._tokenise, daemon=True).start()

    def opened(self) -> None:
        """Returns when every engine is open; raises what kept one from it."""
        for opening in self._opening:
            opening.done.wait()
            if opening.error:
                raise opening.error

    def submit(self, key: str, texts: Sequence[Any]) -> None:
        work = _Work([text if isinstance(text, str) else (text[0], text[1]) for text in texts])
        self._works[key] = work
        self._submitted.put(work)

    def wait(self, key: str, timeout_s: float) -> dict[str, Any]:
        """How far this work is; returns early when it is done. Raises what went wrong in it."""
        self.opened()
        work = self._works[key]
        done = work.done.wait(timeout_s)
        if work.error:
            raise work.error
        return {"done": done, "rows": work.rows_done, "tokens": work.tokens_done}

    def take(self, key: str) -> Encoded:
        """The result of finished work; it stays until `forget`."""
        work = self._works[key]
        kept = [index for index in range(len(work.texts)) if index not in work.bad]
        vectors = work.vectors[kept] if work.vectors is not None else None
        answers = [work.answers[index] for index in kept] if work.answers else []
        return Encoded(kept, work.bad, vectors, answers, work.tokens_done, work.cut)

    def forget(self, key: str) -> None:
        self._works.pop(key, None)

    def encoded(self, texts: Sequence[Text]) -> Encoded:
        """All of it at once, for callers who have nothing else to do."""
        key = f"whole {id(texts)} {threading.get_ident()}"
        self.submit(key, texts)
        try:
            while not self.wait(key, 60.0)["done"]:
                pass
            return self.take(key)
        finally:
            self.forget(key)

    @property
    def width(self) -> int:
        return width_of(self.artifact)

    def _tokenise(self) -> None:
        while True:
            work = self._submitted.get()
            try:
                self._prepare(work)
            except BaseException as error:  # handed to whoever waits
                work.error = error
                work.done.set()

    def _prepare(self, work: _Work) -> None:
        """Texts to tokens and groups of rows, the longest first: the last to end are then the shortest."""
        if self.artifact.task != EMBEDDING:
            work.answers = [None] * len(work.texts)
            order = sorted(range(len(work.texts)), key=lambda index: _length(work.texts[index]), reverse=True)
            groups = [order[begin : begin + _WINDOW] for begin in range(0, len(order), _WINDOW)]
        else:
            for index, found in enumerate(self._encoder.encodings(work.texts, prompt=self._how.ask.get(PROMPT))):
                work.tokens.append(Row(found.ids, found.type_ids))
                if found.overflowing:
                    if self._how.cut_long:
                        work.cut += 1
                    else:
                        work.bad[index] = f"{TOO_LONG} for the model"
            good = [index for index in range(len(work.texts)) if index not in work.bad]
            work.vectors = np.zeros((len(work.texts), self.width), np.float32)
            lengths = [len(work.tokens[index].ids) for index in good]
            maximum = self.artifact.profile.batch.maximum
            calls = groups_of(lengths, self._how.rows, maximum)
            groups = [[good[place] for place in group] for group in calls][::-1]
        work.waiting = len(groups)
        if not groups:
            work.done.set()
        for group in groups:
            self._groups.put((work, group))

    def _lane(self, lanes: int, threads: int, opening: _Opening) -> None:
        try:
            artifact = bulk_options(self.artifact, lanes)
            with open_session(artifact, threads=threads) as session:
                run = self._vectors if artifact.task == EMBEDDING else _Answers(artifact, self._how)
                opening.done.set()
                while True:
                    work, group = self._groups.get()
                    self._run(run, session.infer, work, group)
        except BaseException as error:  # handed to whoever waits for the lane
            opening.error = error
            opening.done.set()

    def _run(self, run: Callable[..., int], infer: Callable[[Arrays], Arrays], work: _Work, group: list[int]) -> None:
        tokens = 0
        try:
            if work.error is None:
                tokens = run(infer, work, group)
        except BaseException as error:  # handed to whoever waits
            work.error = error
        with work.lock:
            work.waiting -= 1
            work.rows_done += len(group)
            work.tokens_done += tokens
            if not work.waiting or work.error:
                work.done.set()

    def _vectors(self, infer: Callable[[Arrays], Arrays], work: _Work, group: list[int]) -> int:
        assert work.vectors is not None
        rows = [work.tokens[index] for index in group]
        work.vectors[group] = infer(batch_of(self._encoder, rows, self._how.rows))[EMBEDDING]
        return sum(len(row.ids) for row in rows)


class _Answers:
    """What tasks other than embeddings say of a window of texts; a tokenizer for each lane, as it is set and reset."""

    def __init__(self, artifact: Artifact, how: How) -> None:
        self._artifact, self._how = artifact, how
        self._encoder: TextEncoder = encoder_of(artifact)
        self._reader = Reader(str(artifact.directory / "tokenizer.json"))
        self._row = task(artifact.task)

    def __call__(self, infer: Callable[[Arrays], Arrays], work: _Work, group: list[int]) -> int:
        tokens = 0

        def counted(inputs: Mapping[str, Any]) -> Arrays:
            nonlocal tokens
            tokens += int(inputs["attention_mask"].sum() if "attention_mask" in inputs else inputs["input_ids"].size)
            return infer(inputs)

        served = Answering(
            infer=counted,
            encoder=self._encoder,
            reader=self._reader,
            labels=self._artifact.labels,
            facts=self._artifact.details.get("answers", {}),
            policy=self._how.rows,
            maximum_batch=self._artifact.profile.batch.maximum,
        )
        items = [self._row.bulk_item(work.texts[index]) for index in group]
        try:
            found = self._row.served.answer(served, items, **self._how.ask)
        except ValueError as error:
            # One text that the task refuses (a question that leaves no room for its context) spoils only itself.
            if len(group) == 1:
                work.bad[group[0]] = str(error)
                return tokens
            return tokens + sum(self(infer, work, [index]) for index in group)
        for index, answer in zip(group, found, strict=True):
            work.answers[index] = answer
        return tokens


def require_prompt(artifact: Artifact, how: How) -> None:
    """Raises UsageError with the names that there are, if a prompt is asked for that the artifact does not have."""
    name, known = how.ask.get(PROMPT), artifact.tokenizer.prompts
    if name is not None and name not in known:
        raise UsageError(
            f"{artifact.name} has no prompt {name!r}.",
            hint=f"Known: {', '.join(known)}." if known else "It has no prompts at all: leave it out.",
        )


def lanes_for(artifact: Artifact, cores: int, memory_bytes: int) -> tuple[int, int]:
    """Lanes, and threads of each: a lane a core; fewer and wider where their copies would fill half of the memory."""
    if backend(artifact.backend).needs_driver:
        return 1, cores
    copies = memory_bytes // 2 // max(1, 3 * artifact.size_bytes)
    lanes = max(1, min(cores, copies))
    return lanes, max(1, cores // lanes)


def width_of(artifact: Artifact) -> int:
    """Numbers in one vector of this artifact; 0 where its answers are no vectors."""
    if artifact.task != EMBEDDING:
        return 0
    width = next(spec for spec in artifact.signature.outputs if spec.name == EMBEDDING).dims[-1]
    if not isinstance(width, int):
        raise UsageError(f"The embedding of {artifact.directory.name} has no fixed width: {width}.")
    return width


def bulk_options(artifact: Artifact, lanes: int) -> Artifact:
    """The artifact as a lane opens it. OpenVINO keeps kernels within bounds; and as it pins the only thread of every
    engine to the same core, lanes side by side are not pinned.
    """
    if artifact.backend != "openvino":
        return artifact
    options: dict[str, Any] = {"CPU_RUNTIME_CACHE_CAPACITY": KEPT_KERNELS, **artifact.engine_options}
    if lanes > 1:
        options["ENABLE_CPU_PINNING"] = False
    return artifact.model_copy(update={"engine_options": options}).at(artifact.directory)


def _length(text: Text) -> int:
    return len(text) if isinstance(text, str) else len(text[0]) + len(text[1])
