"""Encodes texts with an artifact: one thread tokenises, and several lanes run the model.

A lane is a thread with its own copy of the model. The local engine runs this class in a child process, and the Ray
engine runs it in an actor, on the same chunks. Where memory allows, each lane has one engine thread. The vectors then
depend neither on the engine nor on the number of cores.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from trimaran.bulk.chunks import Identity
from trimaran.bulk.part_files import PartResults
from trimaran.bulk.readers import TOO_LONG
from trimaran.core.artifact import Artifact, load_artifact
from trimaran.core.backends import Arrays, backend, open_session
from trimaran.core.choices import Overflow, Rows
from trimaran.core.corpus import encoder_of
from trimaran.core.errors import UsageError
from trimaran.core.small_vectors import Vectors
from trimaran.core.spec import Frozen
from trimaran.core.tasks import task
from trimaran.core.whole_texts import WholeTexts, pieces_by
from trimaran.runtime.answers import Answering, Reader
from trimaran.runtime.tasks.hybrid_embedding import DENSE
from trimaran.runtime.text import Infer, Row, Text, TextEncoder, batch_of, groups_of
from trimaran.runtime.wire import PROMPT

EMBEDDING = "embedding"
# OpenVINO caches up to 5,000 compiled kernels and oneDNN below it 1,024, one for each shape, at about half a megabyte
# each. A run has few shapes (`groups_of`), so it needs fewer kernels than this.
KEPT_KERNELS = 768
ENGINE_ENVIRONMENT = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": str(KEPT_KERNELS)}
# Outputs with an axis of tokens are padded to the longest text of a window, so windows are small.
_WINDOW = 128


class EncodeOptions(Frozen):
    """How a run encodes texts; part of its identity."""

    rows: Rows = "alone"  # which rows may share a call
    cut_long: bool = True  # cut texts that are longer than the model reads, or reject them
    ask: dict[str, Any] = {}  # options of the task, such as `top_k`
    # What becomes of texts that are longer than the model reads, for embeddings.
    overflow: Overflow = Field(default="cut", exclude_if=lambda value: value == "cut")


@dataclass
class Encoded:
    """The results of a chunk's texts."""

    kept: list[int]  # indices of the texts that have a result, in order
    bad: dict[int, str]  # indices of the others, with the reason
    vectors: Vectors | None
    answers: list[Any]
    tokens: int
    cut: int

    def part(self, rows: Sequence[int], ids: Sequence[Identity]) -> PartResults:
        """The results with the row numbers and ids of their texts."""
        kept_rows, kept_ids = [rows[index] for index in self.kept], [ids[index] for index in self.kept]
        return PartResults(kept_rows, kept_ids, self.vectors, self.answers)


@dataclass
class _Job:
    """Submitted texts, and what is known of them so far."""

    texts: Sequence[Text]
    tokens: list[Row] = field(default_factory=list)
    bad: dict[int, str] = field(default_factory=dict)
    cut: int = 0
    vectors: Vectors | None = None
    # The pieces of too long texts: then tokens and vectors are those of the pieces.
    whole: WholeTexts | None = None
    answers: list[Any] = field(default_factory=list)
    groups_left: int = 0
    rows_done: int = 0
    tokens_done: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    finished: Future[None] = field(default_factory=Future)

    def finish(self, error: BaseException | None = None) -> None:
        """Ends the job. Only the first call counts: several lanes may fail."""
        with self.lock:
            if self.finished.done():
                return
            if error is None:
                self.finished.set_result(None)
            else:
                self.finished.set_exception(error)


class EncodeWorker:
    """`submit` texts under a key, `wait` for them, `take` the result. Safe to call from several threads.

    Engines open in the background while the first texts are tokenised; `opened` waits for them.
    """

    def __init__(self, directory: str, *, lanes: int, threads: int, how: EncodeOptions) -> None:
        self.artifact = load_artifact(Path(directory))
        # The engine's library and the tokenizer's thread pool read these once, when they are first imported.
        os.environ.update(ENGINE_ENVIRONMENT | self.artifact.execution_environment)
        os.environ.setdefault("RAYON_NUM_THREADS", str(lanes))
        self._how = how
        self._encoder = encoder_of(self.artifact)
        self._jobs: dict[str, _Job] = {}
        self._submitted: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._groups: queue.SimpleQueue[tuple[_Job, list[int]]] = queue.SimpleQueue()
        self._openings: list[Future[None]] = [Future() for _ in range(lanes)]
        for opening in self._openings:
            threading.Thread(target=self._lane, args=(lanes, threads, opening), daemon=True).start()
        threading.Thread(target=self._tokenise, daemon=True).start()

    def opened(self) -> None:
        """Returns when every engine is open; raises the error of one that did not open."""
        for opening in self._openings:
            opening.result()

    def submit(self, key: str, texts: Sequence[Any]) -> None:
        job = _Job([text if isinstance(text, str) else (text[0], text[1]) for text in texts])
        self._jobs[key] = job
        self._submitted.put(job)

    def wait(self, key: str, timeout_s: float) -> dict[str, Any]:
        """How far a job is. Returns early when it is done; raises the error that ended it."""
        self.opened()
        job = self._jobs[key]
        done = bool(wait([job.finished], timeout_s).done)
        if done:
            job.finished.result()
        return {"done": done, "rows": job.rows_done, "tokens": job.tokens_done}

    def take(self, key: str) -> Encoded:
        """The result of a finished job; it stays until `forget`."""
        job = self._jobs[key]
        kept = [index for index in range(len(job.texts)) if index not in job.bad]
        vectors = job.vectors
        if vectors is not None:
            vectors = job.whole.joined(vectors) if job.whole else vectors[kept]
        answers = [job.answers[index] for index in kept] if job.answers else []
        if vectors is None and (width := width_of(self.artifact)):
            vectors = np.asarray([answer[DENSE] for answer in answers], np.float32).reshape(-1, width)
            answers = [{kind: part for kind, part in answer.items() if kind != DENSE} for answer in answers]
        return Encoded(kept, job.bad, vectors, answers, job.tokens_done, job.cut)

    def forget(self, key: str) -> None:
        self._jobs.pop(key, None)

    def encoded(self, texts: Sequence[Text]) -> Encoded:
        """Submits texts and waits for their result."""
        key = f"whole {id(texts)} {threading.get_ident()}"
        self.submit(key, texts)
        try:
            while not self.wait(key, 60.0)["done"]:
                pass
            return self.take(key)
        finally:
            self.forget(key)

    def _tokenise(self) -> None:
        while True:
            job = self._submitted.get()
            try:
                self._prepare(job)
            except BaseException as error:  # raised again in `wait`
                job.finish(error)

    def _prepare(self, job: _Job) -> None:
        """Tokenises a job and queues its groups of rows, the longest first: no lane ends with a long group."""
        if self.artifact.task != EMBEDDING:
            job.answers = [None] * len(job.texts)
            order = sorted(range(len(job.texts)), key=lambda index: _length(job.texts[index]), reverse=True)
            groups = [order[begin : begin + _WINDOW] for begin in range(0, len(order), _WINDOW)]
        else:
            groups = self._token_groups(job)
        job.groups_left = len(groups)
        if not groups:
            job.finish()
        for group in groups:
            self._groups.put((job, group))

    def _token_groups(self, job: _Job) -> list[list[int]]:
        texts = job.texts
        if self._how.overflow != "cut":
            job.whole = pieces_by(self._cut, job.texts, self._how.overflow)
            texts = [piece.text for piece in job.whole.read]
        for index, encoding in enumerate(self._encoder.encodings(texts, prompt=self._how.ask.get(PROMPT))):
            job.tokens.append(Row(encoding.ids, encoding.type_ids))
            if encoding.overflowing:
                if self._how.cut_long:
                    job.cut += 1
                else:
                    job.bad[index] = f"{TOO_LONG} for the model"
        good = [index for index in range(len(texts)) if index not in job.bad]
        job.vectors = np.zeros((len(texts), width_of(self.artifact)), np.float32)
        lengths = [len(job.tokens[index].ids) for index in good]
        groups = groups_of(lengths, self._how.rows, self.artifact.profile.batch.maximum)
        return [[good[position] for position in group] for group in groups][::-1]

    def _cut(self, texts: Sequence[str]) -> list[bool]:
        encodings = self._encoder.encodings(texts, prompt=self._how.ask.get(PROMPT))
        return [bool(encoding.overflowing) for encoding in encodings]

    def _lane(self, lanes: int, threads: int, opening: Future[None]) -> None:
        try:
            artifact = bulk_options(self.artifact, lanes)
            with open_session(artifact, threads=threads) as session:
                run = self._vectors if artifact.task == EMBEDDING else _AnswerRunner(artifact, self._how)
                opening.set_result(None)
                while True:
                    job, group = self._groups.get()
                    self._run(run, session.infer, job, group)
        except BaseException as error:  # raised again in `opened`
            opening.set_exception(error)

    def _run(self, run: Callable[[Infer, _Job, list[int]], int], infer: Infer, job: _Job, group: list[int]) -> None:
        try:
            tokens = 0 if job.finished.done() else run(infer, job, group)
        except BaseException as error:  # raised again in `wait`
            job.finish(error)
            return
        with job.lock:
            job.groups_left -= 1
            job.rows_done += len(group)
            job.tokens_done += tokens
        if not job.groups_left:
            job.finish()

    def _vectors(self, infer: Infer, job: _Job, group: list[int]) -> int:
        assert job.vectors is not None
        rows = [job.tokens[index] for index in group]
        job.vectors[group] = infer(batch_of(self._encoder, rows, self._how.rows))[EMBEDDING]
        return sum(len(row.ids) for row in rows)


class _AnswerRunner:
    """Answers a window of texts, for tasks other than embedding. Each lane has a tokenizer: its settings change."""

    def __init__(self, artifact: Artifact, how: EncodeOptions) -> None:
        self._artifact, self._how = artifact, how
        self._encoder: TextEncoder = encoder_of(artifact)
        self._reader = Reader(str(artifact.directory / "tokenizer.json"))
        self._task = task(artifact.task)

    def __call__(self, infer: Infer, job: _Job, group: list[int]) -> int:
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
        try:
            items = [self._task.bulk_item(job.texts[index]) for index in group]
            with self._encoder.noting_truncated() as truncated:
                answers = self._task.served.answer(served, items, **self._how.ask)
        except ValueError as error:
            # A text that the task refuses (a question that leaves no room for its context) rejects only itself.
            if len(group) == 1:
                job.bad[group[0]] = str(error)
                return tokens
            return tokens + sum(self(infer, job, [index]) for index in group)
        begin = 0
        for index, item, answer in zip(group, items, answers, strict=True):
            end = begin + self._task.served.encoded_rows(item, self._how.ask)
            if not self._task.served.truncated(truncated[begin:end]):
                job.answers[index] = answer
            elif self._how.cut_long:
                job.answers[index] = answer
                with job.lock:
                    job.cut += 1
            else:
                job.bad[index] = f"{TOO_LONG} for the model"
            begin = end
        return tokens


def require_prompt(artifact: Artifact, how: EncodeOptions) -> None:
    """Raises UsageError if the artifact does not have the prompt that is asked for."""
    name, known = how.ask.get(PROMPT), artifact.tokenizer.prompts
    if name is not None and name not in known:
        raise UsageError(
            f"{artifact.name} has no prompt {name!r}.",
            hint=f"Known: {', '.join(known)}." if known else "It has no prompts at all: leave it out.",
        )


def lanes_for(artifact: Artifact, cores: int, memory_bytes: int) -> tuple[int, int]:
    """Number of lanes, and threads of each.

    There is one lane for each core. If their copies of the model would fill half of the memory, there are fewer lanes
    with more threads.
    """
    if backend(artifact.backend).needs_driver:
        return 1, cores
    copies = memory_bytes // 2 // max(1, 3 * artifact.size_bytes)
    lanes = max(1, min(cores, copies))
    return lanes, max(1, cores // lanes)


def width_of(artifact: Artifact) -> int:
    """Numbers of one vector; 0 where the answers are no vectors."""
    if not task(artifact.task).pools:
        return 0
    width = next(spec for spec in artifact.signature.outputs if spec.name == EMBEDDING).dims[-1]
    if not isinstance(width, int):
        raise UsageError(f"The embedding of {artifact.directory.name} has no fixed width: {width}.")
    return width


def bulk_options(artifact: Artifact, lanes: int) -> Artifact:
    """The artifact with the options of a lane: OpenVINO bounds its kernel cache.

    OpenVINO would pin the single thread of every lane to the same core, so several lanes are not pinned.
    """
    if artifact.backend != "openvino":
        return artifact
    options: dict[str, Any] = {"CPU_RUNTIME_CACHE_CAPACITY": KEPT_KERNELS, **artifact.engine_options}
    if lanes > 1:
        options["ENABLE_CPU_PINNING"] = False
    return artifact.model_copy(update={"engine_options": options}).at(artifact.directory)


def _length(text: Text) -> int:
    return len(text) if isinstance(text, str) else len(text[0]) + len(text[1])
