"""How far served answers are from wanted ones, by the task's own metrics, seen from the caller's side of the wire."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from trimaran.core.parity import Outputs
from trimaran.core.tasks import task as task_named

Tensors = Mapping[str, npt.NDArray[Any]]
_SMALLEST = 1e-30


def wire_fidelity(task: str, numbers: str, wanted: Tensors, found: Tensors) -> dict[str, float]:
    """The metrics of the task's gates as far as a caller can see them.

    `numbers` names what the scores of a classifier were: the graph's own output.
    """
    if task in _COMPARED:
        return _COMPARED[task](wanted, found)
    vocabulary = _widest(wanted, found)
    return task_named(task).fidelity(
        outputs_of_wire(task, numbers, wanted, vocabulary), outputs_of_wire(task, numbers, found, vocabulary)
    )


def wire_change(task: str, numbers: str, before: Tensors, after: Tensors) -> float:
    """The largest change of an answer between two ways of asking the same, in the task's own measure."""
    if task in _COMPARED:
        return _COMPARED[task](before, after)["max_abs_difference"]
    vocabulary = _widest(before, after)
    return task_named(task).change(
        outputs_of_wire(task, numbers, before, vocabulary), outputs_of_wire(task, numbers, after, vocabulary)
    )


def outputs_of_wire(task: str, numbers: str, tensors: Tensors, vocabulary: int = 0) -> Outputs:
    """Answers as numbers in an order that does not depend on the answer: by label, by document, by token."""
    if task == "embedding":
        return {"embedding": tensors["EMBEDDING"]}
    if task in ("text-classification", "zero-shot-classification"):
        order = np.argsort(tensors["LABELS"].astype("S"), axis=-1, kind="stable")
        scores = np.take_along_axis(tensors["SCORES"], order, axis=-1)
        # Logits leave the server as probabilities; their logarithms differ from logits by a constant a row.
        return {numbers: np.log(np.maximum(scores, _SMALLEST)) if numbers == "logits" else scores}
    if task == "rerank":
        order = np.argsort(tensors["INDICES"], axis=-1, kind="stable")
        return {"score": np.take_along_axis(tensors["SCORES"], order, axis=-1).reshape(-1, 1)}
    if task == "sparse-embedding":
        weights = np.zeros((len(tensors["TOKEN_IDS"]), vocabulary), np.float32)
        for row, ids, values in zip(weights, tensors["TOKEN_IDS"], tensors["WEIGHTS"], strict=True):
            row[ids[ids >= 0]] = values[ids >= 0]
        return {"weights": weights}
    vectors = tensors["TOKEN_EMBEDDINGS"].astype(np.float32, copy=True)
    for row, length in zip(vectors, tensors["LENGTH"][:, 0], strict=True):
        row[length:] = np.nan
    return {"token_embeddings": vectors}


def _widest(*sides: Tensors) -> int:
    return max((int(side["TOKEN_IDS"].max(initial=-1)) + 1 for side in sides if "TOKEN_IDS" in side), default=0)


def _parsed(column: npt.NDArray[Any]) -> list[Any]:
    return [json.loads(value) for value in column.ravel()]


def _entities(wanted: Tensors, found: Tensors) -> dict[str, float]:
    """`entity_agreement` is the F1 of (label, start, end), found alike by both sides."""
    sides = [_parsed(side["ENTITIES"]) for side in (wanted, found)]
    same, total, change = 0, 0, 0.0
    for before, after in zip(*sides, strict=True):
        scores, others = ({_place(entity): entity["score"] for entity in side} for side in (before, after))
        shared = scores.keys() & others.keys()
        same, total = same + 2 * len(shared), total + len(scores) + len(others)
        change = max([change, *(abs(scores[key] - others[key]) for key in shared)])
    agreement = same / total if total else 1.0
    return {"entity_agreement": agreement, "max_abs_difference": change if agreement == 1.0 else float("inf")}


def _place(entity: Mapping[str, Any]) -> tuple[str, int, int]:
    return str(entity.get("entity_group", entity.get("entity"))), int(entity["start"]), int(entity["end"])


def _spans(wanted: Tensors, found: Tensors) -> dict[str, float]:
    """`span_agreement` is the share of questions whose best span is the same."""
    sides = [_parsed(side["ANSWERS"]) for side in (wanted, found)]
    best = [[(row[0]["start"], row[0]["end"]) if row else None for row in side] for side in sides]
    scores = np.asarray([[row[0]["score"] if row else 0.0 for row in side] for side in sides])
    agreement = float(np.mean([a == b for a, b in zip(*best, strict=True)]))
    change = float(np.abs(scores[0] - scores[1]).max(initial=0.0))
    return {"span_agreement": agreement, "max_abs_difference": change if agreement == 1.0 else float("inf")}


def _fillings(wanted: Tensors, found: Tensors) -> dict[str, float]:
    """Agreement of the most probable token of every mask, and the change of its probability."""
    sides = [[mask[0] for row in _parsed(side["FILLINGS"]) for mask in row if mask] for side in (wanted, found)]
    if len(sides[0]) != len(sides[1]) or not sides[0]:
        return {
            "token_agreement": 0.0,
            "mean_probability_change": float("inf"),
            "max_abs_difference": float("inf"),
        }
    scores = np.asarray([[token["score"] for token in side] for side in sides])
    changes = np.abs(scores[0] - scores[1])
    agreement = float(np.mean([a["token"] == b["token"] for a, b in zip(*sides, strict=True)]))
    return {
        "token_agreement": agreement,
        "mean_probability_change": float(changes.mean()),
        "max_abs_difference": float(changes.max()) if agreement == 1.0 else float("inf"),
    }


_COMPARED: dict[str, Callable[[Tensors, Tensors], dict[str, float]]] = {
    "token-classification": _entities,
    "question-answering": _spans,
    "fill-mask": _fillings,
}
