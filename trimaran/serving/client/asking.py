"""How a served model is asked at the command line, by its task."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from trimaran.core.errors import UsageError

if TYPE_CHECKING:
    from trimaran.serving.client import Client, Model

PAIR_MARK = "|||"
# What is typed after the name of a model.
_EXAMPLES = {
    "question-answering": ("Where did Ada live?", "Ada lived in London."),
    "rerank": ("What floats?", "A stone sinks.", "A boat floats."),
    "zero-shot-classification": ("A fine day at sea.", "--label", "weather", "--label", "money"),
    "multiple-choice": ("It began to rain, so", "she opened her umbrella.", "the stone sang."),
    "next-sentence": ("It began to rain.", "She opened her umbrella."),
    "fill-mask": ("The boat has three {mask}.",),
}


# Outputs of the tasks that rank their answers, of which a caller may want the first few.
_RANKED = {"SCORES", "FILLINGS", "INDICES", "BEST", "ANSWERS", "WEIGHTS", "VECTOR_TOKENS"}


class Asked(NamedTuple):
    """What was asked, one string an answer, and the answers."""

    texts: list[str]
    answers: Any


def example_command(name: str, task: str, *, mask_token: str = "") -> str:
    """A line for a shell that asks this model something which fits its task."""
    arguments = [argument.replace("{mask}", mask_token) for argument in _EXAMPLES.get(task, ("some text",))]
    return shlex.join(["trimaran", "query", name, *arguments])


def ask(
    client: Client,
    name: str,
    arguments: Sequence[str],
    labels: Sequence[str],
    *,
    prompt: str | None = None,
    top_k: int | None = None,
    template: str | None = None,
) -> Asked:
    """Reads the arguments as the model's task wants them. Raises UsageError with a line that shows how it is typed.

    `top_k` is how many answers a text gets at most, for tasks that rank them. `template` is of zero-shot and fill-mask
    models. `labels` of a fill-mask model are each typed as `label=word,word`.
    """
    model = client.model(name)
    if top_k is not None and not _RANKED & set(model.outputs):
        raise UsageError(f"Model {name} ({model.task}) ranks no answers.", hint="Leave out --top-k.")
    zero_shot, masked = "CANDIDATE_LABELS" in model.inputs, "FILLINGS" in model.outputs
    if (labels or template is not None) and not (zero_shot or masked):
        raise UsageError(f"Model {name} is not told labels.", hint="Leave out --label and --template.")
    if masked:
        if not labels:
            return Asked(list(arguments), client.fill(name, arguments, top_k=top_k, template=template))
        rankings = client.classify(name, arguments, label_words=_words_by_label(model, labels), template=template)
        return Asked(list(arguments), _cut(rankings, top_k))
    for output, form in _FORMS.items():
        if output in model.outputs:
            return form(client, model, list(arguments), top_k)
    if zero_shot:
        if not labels:
            raise _wrong(model, "zero-shot-classification", "texts and at least one --label", "no --label")
        return Asked(list(arguments), _cut(client.classify(name, arguments, labels=labels, template=template), top_k))
    pairs_too = "TEXT_PAIR" in model.inputs
    rows: list[Any] = [_pair(text) if pairs_too and PAIR_MARK in text else text for text in arguments]
    return Asked(list(arguments), _ask_texts(client, model, rows, prompt=prompt, top_k=top_k))


def _ask_texts(client: Client, model: Model, rows: list[Any], *, prompt: str | None, top_k: int | None) -> Any:
    if "VECTOR_TOKENS" in model.outputs:
        return client.hybrid(model.name, rows, prompt=prompt, top_k=top_k)
    if "WEIGHTS" in model.outputs:
        return client.sparse(model.name, rows, prompt=prompt, top_k=top_k)
    if prompt is not None:
        return client.embed(model.name, rows, prompt=prompt)
    answers = client.query(model.name, rows)
    return _cut(answers, top_k) if "SCORES" in model.outputs else answers


def _words_by_label(model: Model, labels: Sequence[str]) -> dict[str, list[str]]:
    words: dict[str, list[str]] = {}
    for entry in labels:
        label, _, typed = entry.partition("=")
        label_words = [word.strip() for word in typed.split(",") if word.strip()]
        if not label or not label_words:
            raise UsageError(
                f"Model {model.name} (fill-mask) wants a label with its words, found --label {entry[:60]!r}.",
                hint="Type: --label sport=football,tennis --label money=banks --template '{} It is about {mask}.'",
            )
        words.setdefault(label.strip(), []).extend(label_words)
    return words


def _cut(rankings: Sequence[Any], top_k: int | None) -> list[Any]:
    return [ranking[:top_k] for ranking in rankings]


def _rerank(client: Client, model: Model, arguments: list[str], top_k: int | None) -> Asked:
    if len(arguments) < 2:
        raise _wrong(model, "rerank", "a query and at least one document", f"{len(arguments)} text")
    query, *documents = arguments
    ranked = client.rerank(model.name, query, documents, top_k=top_k)
    return Asked([query], [[(documents[index], score) for index, score in ranked]])


def _choose(client: Client, model: Model, arguments: list[str], top_k: int | None) -> Asked:
    if len(arguments) < 3:
        raise _wrong(model, "multiple-choice", "a text and at least two choices", f"{len(arguments)} texts")
    text, *choices = arguments
    chosen = client.choose(model.name, text, choices)[:top_k]
    return Asked([text], [[(choices[index], score) for index, score in chosen]])


def _follows(client: Client, model: Model, arguments: list[str], top_k: int | None) -> Asked:
    pairs = _pairs(model, arguments, "next-sentence", "a text and the one that may follow")
    return Asked([first for first, _ in pairs], client.follows(model.name, pairs))


def _answer(client: Client, model: Model, arguments: list[str], top_k: int | None) -> Asked:
    pairs = _pairs(model, arguments, "question-answering", "a question and a context")
    return Asked([question for question, _ in pairs], client.answer(model.name, pairs, top_k=top_k))


# How the arguments are read, by the output that marks the kind of model; all others take a list of texts.
_FORMS: dict[str, Callable[[Client, Model, list[str], int | None], Asked]] = {
    "INDICES": _rerank,
    "BEST": _choose,
    "FOLLOWS": _follows,
    "ANSWERS": _answer,
}


def _pairs(model: Model, arguments: Sequence[str], task: str, wanted: str) -> list[tuple[str, str]]:
    """One pair as two arguments, or any number of `first ||| second`."""
    marked = [PAIR_MARK in argument for argument in arguments]
    if all(marked):
        return [_pair(argument) for argument in arguments]
    if len(arguments) == 2 and not any(marked):
        return [(arguments[0], arguments[1])]
    typed = f"{len(arguments)} text{'s'[: len(arguments) > 1]}"
    if any(marked):
        typed += f", only some of them with {PAIR_MARK}"
    raise _wrong(model, task, wanted, typed)


def _pair(text: str) -> tuple[str, str]:
    first, _, second = (part.strip() for part in text.partition(PAIR_MARK))
    if not first or not second:
        raise UsageError(
            f"Wanted a text on both sides of {PAIR_MARK}, found {text[:60]!r}.", hint="Type 'first ||| second'."
        )
    return first, second


def _wrong(model: Model, task: str, wanted: str, typed: str) -> UsageError:
    return UsageError(
        f"Model {model.name} ({task}) wants {wanted}, found {typed}.",
        hint=f"Type: {example_command(model.name, task)}",
    )
