"""Fill-mask: the most probable tokens for each mask."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from trimaran.core.distances import Answers, Column, Floats, Outputs, by_token, first_of, largest_differences
from trimaran.core.errors import UsageError
from trimaran.core.metrics import Metric
from trimaran.core.spec import ModelRef, TensorSpec
from trimaran.core.tasks.library import Library
from trimaran.core.tasks.shared import relative_change
from trimaran.core.tasks.task import (
    FLOAT_NOISE,
    AnswerContext,
    Gate,
    Head,
    Loss,
    RequestRow,
    Task,
    WireTensors,
    first_text,
    levels,
    parsed_rows,
    tensor,
)
from trimaran.runtime.label_words import LABEL_WORDS, MASK_SCORES
from trimaran.runtime.text import Text
from trimaran.runtime.wire import OPTIONS

# Words before the mask at most.
_LATEST_MASK = 20
# Every so many golden requests, one more that asks for so many labels by their words.
_LABELLED_EVERY = 8
_LABELS = 2


def _finish(output: Any, inputs: Mapping[str, Any], ref: ModelRef) -> Any:
    """The most probable tokens at each position, and of the first mask the probability of every token.

    All tokens at all positions would be a hundred megabytes a text; those of one position are as many numbers as the
    vocabulary has tokens, and stay beside the engine: a request names the words of which it wants the scores.
    """
    scores, ids = output.logits.softmax(dim=-1).topk(ref.top_k, dim=-1)
    if ref.mask_id is None:
        return scores, ids
    # The first of several masks. A text without a mask gets the scores of its first token, which are never used.
    first = (inputs["input_ids"] == ref.mask_id).float().argmax(dim=1)
    at_mask = output.logits.gather(1, first[:, None, None].expand(-1, 1, output.logits.shape[-1]))
    return scores, ids, at_mask.squeeze(1).softmax(dim=-1)


def _outputs(ref: ModelRef) -> tuple[TensorSpec, ...]:
    best = (
        tensor("token_scores", "sequence", ref.top_k),
        tensor("token_ids", "sequence", ref.top_k, dtype="int64"),
    )
    return best if ref.mask_id is None else (*best, tensor(MASK_SCORES, ref.vocabulary))


def _facts(ref: ModelRef, tokenizer: Any) -> dict[str, int]:
    if tokenizer.mask_token_id is None:
        raise UsageError(f"The tokenizer of {ref.source} has no mask token, which fill-mask fills.")
    return {"mask_id": int(tokenizer.mask_token_id)}


def _asked(context: AnswerContext, texts: Sequence[Text]) -> Sequence[Text]:
    """Each text with one word hidden, early enough to be read by every model."""
    mask = context.facts.get("mask_id")
    return [_hidden(first_text(text), context.reader.token(mask)) for text in texts] if mask is not None else texts


def _hidden(text: str, mask_token: str) -> str:
    """The middle word of the text, or of its beginning."""
    words = text.split()
    middle = min(len(words) // 2, _LATEST_MASK)
    return " ".join([*words[:middle], mask_token, *words[middle + 1 :]])


def _judged(context: AnswerContext, texts: Sequence[Text], outputs: Outputs) -> Answers:
    """Of each text the best (token, score) at each of its masks, where any text has one."""
    mask = context.facts.get("mask_id")
    mask_positions = [
        [position for position, token in enumerate(encoding.ids) if token == mask]
        for encoding in context.encoder.encodings(texts)
    ]
    if mask is None or not any(mask_positions):
        return outputs
    ids, scores = outputs["token_ids"], outputs["token_scores"]
    masks = [
        [
            (int(ids[index, position, 0]), float(scores[index, position, 0]))
            for position in row
            if position < ids.shape[1]
        ]
        for index, row in enumerate(mask_positions)
    ]
    return {**outputs, "masks": masks}


def _with_masks(reference: Answers, candidate: Answers) -> npt.NDArray[np.bool_]:
    """A long text may be cut before its mask, and then says nothing."""
    if not _masks_only(reference, candidate) or not any(reference["masks"]):
        return np.ones(len(first_of(reference)), bool)
    pairs = zip(reference["masks"], candidate["masks"], strict=True)
    return np.asarray([bool(before or after) for before, after in pairs], bool)


def _from_wire(numbers: str, tensors: WireTensors, other: WireTensors) -> Answers:
    """Of each text the best (token, score) of each of its masks, or the best (label, score) of its label words."""
    return {"masks": [_best_of(row) for row in parsed_rows(tensors["FILLINGS"])]}


def _best_of(row: Sequence[Any]) -> list[tuple[Any, float]]:
    if row and isinstance(row[0], Mapping):
        return [(row[0]["label"], row[0]["score"])]
    return [(mask[0]["token"], mask[0]["score"]) for mask in row if mask]


def _by_mask(reference: Answers, candidate: Answers, distance: Any, *, unlike: float, alike: float) -> Column:
    """A distance of (token, score) pairs over each text's masks; `unlike` where their numbers differ.

    A long text is cut before its mask, and then has none on both sides: it counts as `alike`. Where no text at all has
    a mask nothing was compared, and that does not pass for agreement.
    """
    rows = []
    neither = alike if any(reference["masks"]) else unlike
    for before, after in zip(reference["masks"], candidate["masks"], strict=True):
        if len(before) != len(after):
            rows.append(unlike)
        else:
            rows.append(distance(list(zip(before, after, strict=True))) if before else neither)
    return np.asarray(rows, np.float64)


def _masks_only(reference: Answers, candidate: Answers) -> bool:
    return "masks" in reference and "masks" in candidate


def _agreement(reference: Answers, candidate: Answers) -> Column:
    """The share of positions with the same best token; as served, of masks."""
    if _masks_only(reference, candidate):
        return _by_mask(
            reference, candidate, lambda pairs: np.mean([a[0] == b[0] for a, b in pairs]), unlike=0.0, alike=1.0
        )
    return by_token(_same_first, "token_ids")(reference, candidate)


def _changes(reference: Answers, candidate: Answers) -> Column:
    if _masks_only(reference, candidate):
        return _by_mask(
            reference, candidate, lambda pairs: np.mean([abs(a[1] - b[1]) for a, b in pairs]), unlike=np.inf, alike=0.0
        )
    return by_token(lambda before, after: np.abs(before - after), "token_scores")(reference, candidate)


def _largest(reference: Answers, candidate: Answers) -> Column:
    if not ("token_scores" in reference and "token_scores" in candidate):
        largest = _by_mask(
            reference, candidate, lambda pairs: max(abs(a[1] - b[1]) for a, b in pairs), unlike=np.inf, alike=0.0
        )
        return np.where(_agreement(reference, candidate) == 1, largest, np.inf)
    return largest_differences({"token_scores": reference["token_scores"]}, candidate)


def _same_first(before: Floats, after: Floats) -> Floats:
    return np.asarray(before[..., 0] == after[..., 0], np.float64)


def _requests(texts: Sequence[Text], facts: Mapping[str, Any]) -> list[RequestRow]:
    """Each text with a word hidden. Some texts are asked again in a template, with words for two labels.

    They are few, so that the metrics stay those of masks.
    """
    hidden: list[RequestRow] = [{"TEXT": _hidden(first_text(text), str(facts["mask_token"]))} for text in texts]
    words = facts.get("words", ())
    if len(words) < _LABELS:
        return hidden
    label_words = {f"label {turn}": list(words[turn::_LABELS]) for turn in range(_LABELS)}
    options = json.dumps({LABEL_WORDS: label_words, "template": "{} {mask} ."})
    labelled = [{"TEXT": first_text(text), OPTIONS: options} for text in texts[::_LABELLED_EVERY]]
    return [*({**row, OPTIONS: ""} for row in hidden), *labelled]


def _ask(library: Any, text: str) -> list[Any]:
    answers = library(text, tokenizer_kwargs={"truncation": True})
    # One list for each mask; of a single mask the pipeline gives the list alone.
    return [answers] if isinstance(answers[0], dict) else list(answers)


def _numbers(answer: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    return {
        f"the score of token {entry['token']} for mask {mask}": entry["score"]
        for mask, row in enumerate(answer)
        for entry in row
    }


def _column() -> Any:
    import pyarrow as pa

    filling = {"score": pa.float32(), "token": pa.int32(), "token_str": pa.string(), "sequence": pa.string()}
    return pa.list_(pa.list_(pa.struct(filling)))


TASK = Task(
    name="fill-mask",
    describe="the most probable tokens for each mask",
    model_class="AutoModelForMaskedLM",
    outputs=_outputs,
    head=Head(_finish),
    facts=_facts,
    library=Library(pipeline="fill-mask", ask=_ask, numbers=_numbers),
    metrics=(
        Metric(
            "token_agreement",
            _agreement,
            kind="share",
            at_least=True,
            counted=_with_masks,
            texts="texts with a mask",
            title="same token",
            meaning="share of the masks that get eager's best token",
        ),
        Metric("mean_probability_change", _changes, counted=_with_masks, most=1.0),
        Metric("max_abs_difference", _largest, kind="worst"),
    ),
    change=relative_change(("token_scores",), _largest),
    gates=levels(
        (Gate("token_agreement", ">=", 1.0), *FLOAT_NOISE),
        token_agreement=(">=", 0.97, 0.94),
        mean_probability_change=("<=", 0.01, 0.02),
    ),
    headline="token_agreement",
    loss=Loss("|Δ probability| by token", _changes),
    asked=_asked,
    judged=_judged,
    unjudged=frozenset({MASK_SCORES}),
    from_wire=_from_wire,
    requests=_requests,
    in_graph="the head, softmax, top-k, every token at the first mask",
    on_server="masked positions, words, scores of label words",
    column=_column,
    jsonl_options=frozenset({LABEL_WORDS}),
)
