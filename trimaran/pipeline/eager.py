"""Eager PyTorch's answers: what every candidate is judged against. They are computed while the model is exported."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import NamedTuple

from trimaran.core.artifact import Artifact
from trimaran.core.backends import Array
from trimaran.core.tasks.task import RequestRow, WireTensors
from trimaran.judging.final_answers import final_answers
from trimaran.judging.golden import golden_rows
from trimaran.judging.labelled import OnData
from trimaran.judging.quality import reference_answers
from trimaran.pipeline.library import compare_library
from trimaran.pipeline.plan import DeployRun
from trimaran.runtime.answers import Reader

ASSESS_DEADLINE_S = 900.0


class EagerAnswers(NamedTuple):
    # Outputs for the judging texts, in their order.
    judging: Mapping[str, Array]
    # Outputs for the user's labelled data, if there is any.
    on_data: OnData | None


class GoldenRequests(NamedTuple):
    """Requests that callers might send, and eager PyTorch's final answers to them."""

    rows: tuple[RequestRow, ...]
    answers: WireTensors


def eager_answers(run: DeployRun, reference: Artifact, *, threads: int | None = None) -> EagerAnswers:
    plan, threads = run.plan, threads or run.plan.config.threads
    with run.progress.stage("eager answers") as step:
        judging = reference_answers(reference, plan.judging, threads=threads, deadline_s=ASSESS_DEADLINE_S)
        step.outcome(f"{len(plan.judging)} judging texts")
    if plan.data is None:
        return EagerAnswers(judging, None)
    with run.progress.stage("labelled data") as step:
        on_data = reference_answers(reference, plan.data.texts, threads=threads, deadline_s=ASSESS_DEADLINE_S)
        step.outcome(f"{plan.data.metric} over {len(plan.data.gold)} items")
    return EagerAnswers(judging, OnData(plan.data, on_data))


def golden_requests(run: DeployRun, reference: Artifact) -> GoldenRequests:
    mask = reference.details.get("answers", {}).get("mask_id")
    reader = Reader(str(reference.directory / "tokenizer.json"))
    facts = {"mask_token": reader.token(mask) if mask is not None else ""}
    prompts = tuple(reference.tokenizer.prompts)
    chat = reference.tokenizer.chat is not None
    rows = golden_rows(run.plan.ref.task, run.plan.judging, facts, prompts=prompts, chat=chat)
    return GoldenRequests(rows, final_answers(reference, rows, threads=run.plan.lane_threads))


class EagerInBackground:
    """A background thread that asks the model's own library, then eager PyTorch: judging texts and golden requests.

    The export keeps one core busy and making candidates needs no answers yet, so both go on meanwhile. Leaving the
    `with` block waits for the thread: nothing may run beside a measurement.
    """

    def __init__(self, run: DeployRun) -> None:
        self._run = run
        self._thread = ThreadPoolExecutor(1)

    def start(self, reference: Artifact) -> None:
        self._library = self._thread.submit(compare_library, self._run, reference)
        self._answers: Future[EagerAnswers] = self._thread.submit(
            eager_answers, self._run, reference, threads=self._run.plan.lane_threads
        )
        self._requests = self._thread.submit(golden_requests, self._run, reference)

    def answers(self) -> EagerAnswers:
        """Waits for them. Raises what eager PyTorch raised, and where it answers unlike the model's own library."""
        self._library.result()
        return self._answers.result()

    def library(self) -> str:
        """What was compared with the model's own library, in a sentence."""
        return self._library.result()

    def requests(self) -> GoldenRequests:
        return self._requests.result()

    def __enter__(self) -> EagerInBackground:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.shutdown(cancel_futures=error is not None)
