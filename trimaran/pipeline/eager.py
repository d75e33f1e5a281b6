"""Eager PyTorch's answers: what every candidate is judged against. They are computed while the model is exported."""

from __future__ import annotations

import base64
import contextlib
import io
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import NamedTuple

import numpy as np

from trimaran.core.artifact import Artifact, Recipe, digest_of
from trimaran.core.corpus import digest_of_texts
from trimaran.core.environment import capture, tools
from trimaran.core.isolation import Worker
from trimaran.core.progress import SilentProgress
from trimaran.core.proof_effort import LARGE
from trimaran.core.spec import Frozen
from trimaran.core.tasks import task
from trimaran.core.tasks.task import RequestRow, WireTensors, request_facts
from trimaran.export.reference import reference, reference_recipe
from trimaran.judging.final_answers import final_answers
from trimaran.judging.golden import golden_rows, tensors_from_json, tensors_to_json
from trimaran.judging.labelled import OnData
from trimaran.judging.on_teacher import OnTeacher
from trimaran.judging.probe_process import thread_environment
from trimaran.judging.quality import reference_answers
from trimaran.pipeline.children import import_libraries
from trimaran.pipeline.library import compare_library
from trimaran.pipeline.plan import DeployRun
from trimaran.runtime.text import Array, Text

ASSESS_DEADLINE_S = 900.0
# Larger answers are computed again rather than kept: logits over a vocabulary for every token.
_MOST_KEPT_BYTES = 16 << 20


class EagerAnswers(NamedTuple):
    # Outputs for the judging texts, in their order.
    judging: Mapping[str, Array]
    # Outputs for the user's labelled data, if there is any.
    on_data: OnData | None
    # What the model's teacher answers to the judging texts, where one was named.
    on_teacher: OnTeacher | None = None


class GoldenRequests(NamedTuple):
    """Requests that callers might send, and eager PyTorch's final answers to them."""

    rows: tuple[RequestRow, ...]
    answers: WireTensors


class KeptAnswers(Frozen):
    """Answers of eager PyTorch as a record of the store."""

    # An .npz file in base64 (outputs of the model), or the JSON of final answers.
    content: str


def eager_answers(
    run: DeployRun, reference: Artifact, *, threads: int | None = None, worker: Worker | None = None
) -> EagerAnswers:
    plan, threads = run.plan, threads or run.plan.config.threads
    ask = partial(
        reference_answers,
        reference,
        threads=threads,
        deadline_s=ASSESS_DEADLINE_S,
        options=plan.eager_options,
        worker=worker,
    )

    def answers(texts: Sequence[Text]) -> Mapping[str, Array]:
        content = _kept(run, reference, digest_of_texts(texts), threads, lambda: _base64_from_arrays(ask(texts)))
        return _arrays_from_base64(content)

    with run.progress.stage("eager answers") as step:
        judging = answers(plan.judging)
        step.outcome(f"{len(plan.judging)} judging texts")
    on_teacher = _teacher_answers(run, threads, worker)
    if plan.data is None:
        return EagerAnswers(judging, None, on_teacher)
    with run.progress.stage("labelled data") as step:
        on_data = answers(plan.data.texts)
        step.outcome(f"{plan.data.metric} over {len(plan.data.gold)} items")
    return EagerAnswers(judging, OnData(plan.data, on_data), on_teacher)


def _teacher_answers(run: DeployRun, threads: int, worker: Worker | None) -> OnTeacher | None:
    plan = run.plan
    if plan.teacher is None:
        return None
    with run.progress.stage("teacher's answers") as step:
        teacher = reference(plan.teacher, plan.profile, store=run.store, progress=SilentProgress())
        answers = reference_answers(
            teacher,
            plan.judging,
            threads=threads,
            deadline_s=ASSESS_DEADLINE_S,
            options=plan.eager_options,
            worker=worker,
        )
        step.outcome(f"{plan.teacher.name}, {len(plan.judging)} judging texts")
    return OnTeacher(teacher.digest, answers)


def golden_requests(run: DeployRun, reference: Artifact, *, worker: Worker) -> GoldenRequests:
    facts = request_facts(reference)
    prompts = tuple(reference.tokenizer.prompts)
    chat = reference.tokenizer.chat is not None
    rows = golden_rows(run.plan.ref.task, run.plan.judging, facts, prompts=prompts, chat=chat)
    threads = run.plan.eager_threads
    content = _kept(
        run,
        reference,
        digest_of([dict(row) for row in rows]),
        threads,
        lambda: tensors_to_json(final_answers(reference, rows, threads=threads, worker=worker)),
    )
    return GoldenRequests(rows, tensors_from_json(content))


def _kept(run: DeployRun, reference: Artifact, request_digest: str, threads: int, compute: Callable[[], str]) -> str:
    """What eager PyTorch answers to the texts or requests of this digest. The store remembers it.

    The answers of a user's own module are not kept: its code may change without a trace.
    """
    if run.plan.ref.module:
        return compute()
    recipe = Recipe(
        step="eager",
        parents=(reference.digest,),
        parameters={"asked": request_digest, "threads": threads, "cpu": capture().cpu, **run.plan.eager_options},
        tools=tools("torch", "transformers", "tokenizers"),
    )
    kept, _ = run.store.remember(
        recipe,
        KeptAnswers,
        lambda: KeptAnswers(content=compute()),
        keep=lambda answers: len(answers.content) <= _MOST_KEPT_BYTES,
    )
    return kept.content


def _base64_from_arrays(arrays: Mapping[str, Array]) -> str:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return base64.b64encode(buffer.getvalue()).decode()


def _arrays_from_base64(content: str) -> dict[str, Array]:
    with np.load(io.BytesIO(base64.b64decode(content))) as arrays:
        return {name: arrays[name] for name in arrays.files}


class EagerInBackground:
    """A background thread that asks the model's own library, then eager PyTorch: judging texts and golden requests.

    The export keeps one core busy and making candidates needs no answers yet, so both go on meanwhile. One child does
    all three: importing PyTorch and transformers takes longer than the answers of a small model. It begins to import
    with the export, unless the model was exported before. Leaving the `with` block waits for the thread: nothing may
    run beside a measurement.
    """

    def __init__(self, run: DeployRun) -> None:
        self._run = run
        self._thread = ThreadPoolExecutor(1)
        self._child = contextlib.ExitStack()
        self._worker: Worker | None = None

    def start(self, reference: Artifact) -> None:
        threads = self._run.plan.eager_threads
        worker = self._worker or self._begun_worker(reference.execution_environment)
        self._library = self._thread.submit(compare_library, self._run, reference, worker=worker)
        self._answers: Future[EagerAnswers] = self._thread.submit(
            eager_answers, self._run, reference, threads=threads, worker=worker
        )
        self._requests = self._thread.submit(golden_requests, self._run, reference, worker=worker)

    def answers(self) -> EagerAnswers:
        """Waits for them. Raises what eager PyTorch raised, and where it answers unlike the model's own library.

        Of a large model it also waits for the golden requests: memory would hold its weights beside a candidate's.
        """
        self._library.result()
        answers = self._answers.result()
        if self._run.plan.effort is LARGE:
            self._requests.result()
        return answers

    def library(self) -> str:
        """What was compared with the model's own library, in a sentence."""
        return self._library.result()

    def requests(self) -> GoldenRequests:
        return self._requests.result()

    def _begun_worker(self, variables: Mapping[str, str]) -> Worker:
        environment = {**thread_environment(self._run.plan.eager_threads), **variables}
        return self._child.enter_context(Worker(environment=environment))

    def _begins_early(self) -> bool:
        """A large model's libraries are imported when they are needed: the export has the memory until then."""
        plan, store = self._run.plan, self._run.store
        if plan.graph or plan.effort is LARGE:
            return False
        return store.force or store.find(reference_recipe(plan.ref, plan.profile)) is None

    def __enter__(self) -> EagerInBackground:
        if self._begins_early():
            ref = self._run.plan.ref
            names = ["torch", "transformers"]
            if not ref.module and task(ref.task).library_of(ref).sentence:
                names.append("sentence_transformers")
            self._worker = self._begun_worker({})
            self._thread.submit(self._worker.call, import_libraries, ASSESS_DEADLINE_S, names)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.shutdown(cancel_futures=error is not None)
        self._child.close()
