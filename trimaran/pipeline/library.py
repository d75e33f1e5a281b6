"""The stage "as your library answers": our eager text path is held against the model's own library, text by text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import cycle, islice
from typing import Any

from trimaran.core.artifact import Artifact, Recipe, digest_of
from trimaran.core.corpus import shipped_pairs, shipped_texts
from trimaran.core.environment import tools
from trimaran.core.errors import QualityError
from trimaran.core.isolation import Worker
from trimaran.core.isolation import run as run_in_child
from trimaran.core.spec import ModelRef
from trimaran.core.tasks import task
from trimaran.core.tasks.task import RequestRow, Task, request_facts
from trimaran.export.library import LibraryCheck, compare_with_library
from trimaran.export.library_causes import ROUNDING
from trimaran.pipeline.plan import DeployRun
from trimaran.runtime.text import Text
from trimaran.runtime.wire import OPTIONS, PROMPT

_DEADLINE_S = 900.0
GRAPH_IS_REFERENCE = (
    "There are no trained weights beside the ONNX file: the given graph, in fp32 on ONNX Runtime, is the reference. It "
    "was compared neither with trained weights nor with the model's own library. `eager` names it in this report."
)
# Raised when a comparison made before no longer counts.
_VERSION = 1
_ODD = (
    "",
    " \t\n ",
    "  two spaces  before and after  ",
    "UPPER, lower and CamelCase İSTANBUL",
    "naïve café, cafe\u0301, ﬁne, ｆｕｌｌ width, ½ and №",
    "今天天气很好，我们去公园吧。",
    "שלום עולם مرحبا بالعالم नमस्ते สวัสดี",
    "👩‍👩‍👧 🍕🍕 \u200b zero\u200bwidth \ufeff soft\u00adhyphen",
    "line one\r\nline two\x0b\x00 control",
    "http://example.org/a?b=1&c=%20 user@example.org $1,234.56 #tag",
)
# Ordinary texts and pairs, from the beginning of the shipped ones.
_ORDINARY = 6
_HINTS = {
    "the maximum length": "--sequence sets the longest text that is read.",
    "pooling": "--pooling sets how token vectors become one.",
    "normalisation": "--normalize or --no-normalize sets it.",
    "the truncation of dimensions": "--dimensions sets it.",
}


def compare_library(run: DeployRun, reference: Artifact, *, worker: Worker | None = None) -> str:
    """Asks the library once for a model and its versions. Returns what was compared, in a sentence for the report.

    `worker` is a child that others use as well; without one, a child is started for the comparison.
    Raises QualityError at the first difference: a model that answers unlike its own library must not be deployed.
    """
    plan = run.plan
    with run.progress.stage("as your library answers") as step:
        if plan.ref.module:
            words = "The model is a PyTorch module of its own, which no library answers for: eager is the reference."
            step.outcome("no library: eager is the reference")
            return words
        if plan.graph:
            step.outcome("no trained weights: the given graph is the reference")
            return GRAPH_IS_REFERENCE
        rows = requests_of(plan.ref, reference)
        maximum = library_maximum(plan.ref, reference)
        recipe = Recipe(
            step="library",
            parents=(reference.digest,),
            parameters={"version": _VERSION, "rows": digest_of(rows), "maximum": maximum},
            tools=tools("torch", "transformers", "tokenizers", "sentence-transformers"),
        )

        def compute() -> LibraryCheck:
            call = worker.call if worker else run_in_child
            answer = call(
                compare_with_library,
                _DEADLINE_S,
                directory=str(reference.directory.absolute()),
                rows=rows,
                maximum=maximum,
                threads=plan.eager_threads,
            )
            check = LibraryCheck.model_validate(answer)
            require_same(check)
            return check

        check, _ = run.store.remember(recipe, LibraryCheck, compute)
        words = sentence(check, maximum)
        step.outcome(
            words if check.unable else f"{check.library}, {check.compared} requests, max |Δ| {check.largest:.1e}"
        )
    return words


def require_same(check: LibraryCheck) -> None:
    if check.difference:
        raise QualityError(
            f"{check.library} answers differently. {check.difference} The likely cause: {check.cause}.",
            hint=_HINTS.get(check.cause, "The model is not read as its library reads it; nothing was deployed."),
        )


def sentence(check: LibraryCheck, maximum: int | None) -> str:
    if check.unable:
        return f"Not compared with the model's own library ({check.unable}): eager is the reference."
    what = "answers" if check.numbers else "tokens (the vectors were asked for otherwise than the folder says)"
    cut = f", with texts cut at {maximum} tokens" if maximum else ""
    refused = f" The library itself failed on {check.refused} more." if check.refused else ""
    return (
        f"As your library answers: {check.library} gave the same {what} to {check.compared} requests{cut} "
        f"(max |Δ| {check.largest:.1e} ≤ {ROUNDING:g}).{refused}"
    )


def library_maximum(ref: ModelRef, reference: Artifact) -> int | None:
    """The limit of tokens that is set in the library; None where its own is the deployment's."""
    longest = reference.profile.sequence.maximum
    return None if longest == ref.default_sequence else longest


def requests_of(ref: ModelRef, reference: Artifact) -> list[dict[str, Any]]:
    """Ordinary texts, odd ones, pairs where the task takes them, and every prompt, as the wire has them."""
    row = task(ref.task)
    # Without words for labels: the options of these requests are the library's own.
    facts = {**request_facts(reference), "words": ()}
    texts = texts_for(row, reference.profile.sequence.maximum)
    rows: list[RequestRow] = [
        {**request, OPTIONS: json.dumps(options) if options else ""}
        for options in row.library_of(ref).options
        for request in row.requests(texts, facts)
    ]
    further: list[Mapping[str, Any]] = [*({PROMPT: name} for name in ref.prompts), *row.library_of(ref).further_options]
    few = row.requests(shipped_texts("judging")[:2], facts)
    rows += [{**request, OPTIONS: json.dumps(options)} for options in further for request in few]
    return [{name: value if isinstance(value, str) else list(value) for name, value in row.items()} for row in rows]


def texts_for(row: Task, maximum: int) -> list[Text]:
    ordinary = shipped_texts("judging")
    words = " ".join(ordinary).split()
    # Far beyond the maximum: so many words, each of at least one token.
    long = " ".join(islice(cycle(words), 2 * maximum + 64))
    singles: list[Text] = [*ordinary[:_ORDINARY], *_ODD, long]
    # The files hold (context, question), and a model that is asked reads the question first.
    usual = [pair[::-1] if row.asks else pair for pair in shipped_pairs("judging")[:_ORDINARY]]
    first, second = usual[0]
    odd_pairs = [("", second), (first, long), *((first, odd) for odd in _ODD)]
    pairs: list[Text] = [*usual, *odd_pairs, *([] if row.asks else [(long, second), (long, long)])]
    return {"single": singles, "pair": pairs, "either": [*singles, *pairs]}[row.texts]
