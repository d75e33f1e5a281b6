"""The golden bundle: real requests with eager PyTorch's answers, which travel with a model to wherever it is served."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from trimaran.core.corpus import kinds_of, spread
from trimaran.core.persisted import Persisted
from trimaran.core.spec import Frozen
from trimaran.core.tasks import Gate, task
from trimaran.core.tasks.task import BATCH_CHANGE, RequestRow, WireTensors
from trimaran.judging.wire_fidelity import wire_fidelity
from trimaran.runtime.text import Text
from trimaran.runtime.wire import OPTIONS, PROMPT

GOLDEN_FILE = "golden.json"
# Fewer requests of one kind of text say little about it.
FEWEST_OF_KIND = 10
# Tasks with fewer requests have answers that are too large, or too slow, to have more.
_MANY_REQUESTS = 64
_DATA_TYPES = {"FP32": np.float32, "INT64": np.int64, "INT32": np.int32}


class GoldenTensor(Frozen):
    """As the KServe protocol writes a tensor in JSON."""

    name: str
    datatype: Literal["FP32", "INT64", "INT32", "BYTES"]
    shape: tuple[int, ...]
    data: tuple[float | int | str, ...]


class Limit(Frozen):
    metric: str
    comparison: Literal["<=", ">="]
    limit: float


class Golden(Persisted):
    """`rows` are requests by input name, `answers` what eager gave, `limits` what a faithful server keeps to.

    `observed` is what the engine kept to on these rows when it was proven. `numbers` says what a classifier's scores
    were before the post-processing: logits, label_probabilities or values.
    """

    what: ClassVar[str] = "golden bundle"
    remedy: ClassVar[str] = "Deploy the model again."

    task: str
    model: str
    reference: str
    numbers: str
    rows: tuple[dict[str, str | tuple[str, ...]], ...]
    answers: tuple[GoldenTensor, ...]
    limits: tuple[Limit, ...]
    observed: dict[str, float]
    # The answers of the proven engine itself; empty in bundles that were made before.
    proven: tuple[GoldenTensor, ...] = ()

    @property
    def tensors(self) -> WireTensors:
        return {item.name: _array(item) for item in self.answers}

    @property
    def proven_tensors(self) -> WireTensors:
        return {item.name: _array(item) for item in self.proven}

    def proven_by(self, answers: WireTensors) -> Golden:
        """The same bundle with these answers as the proven engine's own."""
        return self.model_copy(update={"proven": tuple(_tensor(name, array) for name, array in answers.items())})

    def kinds(self) -> tuple[str, ...]:
        """The kind of text of each row."""
        return kinds_of([_texts_of(row) for row in self.rows])

    def groups(self) -> dict[str, list[int]]:
        """The places of the rows of each prompt and of each kind of text; a bundle of one kind has no such group."""
        prompts = [f"prompt {_prompt_of(row) or '(default)'}" for row in self.rows]
        kinds = [f"kind {kind}" for kind in self.kinds()]
        groups: dict[str, list[int]] = {}
        for names in (prompts, kinds):
            for index, name in enumerate(names) if len(set(names)) > 1 else ():
                groups.setdefault(name, []).append(index)
        return groups


def read_golden(path: Path) -> Golden:
    return Golden.read(path)


def make_golden(
    *,
    task: str,
    model: str,
    reference: str,
    numbers: str,
    rows: Sequence[RequestRow],
    wanted: WireTensors,
    proven: WireTensors,
    gates: Sequence[Gate],
) -> Golden:
    """`wanted` are eager's answers to the rows, `proven` those of the engine that will be served, in process.

    Limits are the gates' own. `golden_checks.py` says when so few rows refute one.
    """
    observed = wire_fidelity(task, numbers, wanted, proven)
    return Golden(
        task=task,
        model=model,
        reference=reference,
        numbers=numbers,
        rows=tuple(
            {name: value if isinstance(value, str) else tuple(value) for name, value in row.items()} for row in rows
        ),
        answers=tuple(_tensor(name, array) for name, array in wanted.items()),
        limits=tuple(
            Limit(metric=gate.metric, comparison=gate.comparison, limit=gate.limit)
            for gate in gates
            if gate.metric in observed or gate.metric == BATCH_CHANGE
        ),
        observed=observed,
        proven=tuple(_tensor(name, array) for name, array in proven.items()),
    )


def golden_rows(
    name: str, texts: Sequence[Text], facts: Mapping[str, Any], *, prompts: Sequence[str] = (), chat: bool = False
) -> tuple[RequestRow, ...]:
    """Requests made of judging texts (or pairs as the models of a task read them), spread evenly over them.

    Texts of many kinds give at least `FEWEST_OF_KIND` of each, where the task's answers are small enough to travel.

    A model with prompts is asked in turn without one, which means its default, and with each of them by name. One
    with a chat template is also asked with an instruction, where the task takes one.
    """
    row = task(name)
    rows = row.requests(_spread_over_kinds(texts, row.most_requests), facts)
    further = [*({PROMPT: prompt} for prompt in prompts), *(row.library.further_options if chat else ())]
    if further:
        options = ("", *map(json.dumps, further))
        rows = [{**request, OPTIONS: options[index % len(options)]} for index, request in enumerate(rows)]
    return tuple(rows)


def _spread_over_kinds(texts: Sequence[Text], most: int) -> list[Text]:
    """So many of the texts, or, where that is fewer, `FEWEST_OF_KIND` of every kind. Few large answers stay few."""
    kinds = kinds_of(texts)
    chosen = dict.fromkeys(spread(texts, most))
    for kind in dict.fromkeys(kinds) if most >= _MANY_REQUESTS else ():
        of_kind = [text for text, own in zip(texts, kinds, strict=True) if own == kind]
        present = [text for text in of_kind if text in chosen]
        others = [text for text in of_kind if text not in chosen]
        chosen |= dict.fromkeys(spread(others, max(0, FEWEST_OF_KIND - len(present))))
    return list(chosen)


def columns_of(rows: Sequence[RequestRow]) -> dict[str, npt.NDArray[np.object_]]:
    """The rows as one request's tensors of UTF-8 bytes."""
    columns = {}
    for name in rows[0]:
        values = [row[name] for row in rows]
        cells = [[value] if isinstance(value, str) else list(value) for value in values]
        columns[name] = np.array([[cell.encode("utf-8") for cell in row] for row in cells], dtype=np.object_)
    return columns


def tensors_to_json(tensors: WireTensors) -> str:
    return json.dumps([_tensor(name, array).model_dump(mode="json") for name, array in tensors.items()])


def tensors_from_json(text: str) -> WireTensors:
    return {item.name: _array(item) for item in (GoldenTensor.model_validate(entry) for entry in json.loads(text))}


def _texts_of(row: RequestRow) -> Text:
    """What a request is about: its first single strings, as `kinds_of` reads a text or a pair."""
    texts = [value for name, value in row.items() if name != OPTIONS and isinstance(value, str)]
    return (texts[0], texts[1]) if len(texts) > 1 else texts[0]


def _prompt_of(row: RequestRow) -> str:
    return str(json.loads(str(row.get(OPTIONS) or "{}")).get(PROMPT, ""))


def _tensor(name: str, array: npt.NDArray[Any]) -> GoldenTensor:
    if array.dtype == np.object_:
        data = tuple(bytes(value).decode("utf-8") for value in array.ravel())
        return GoldenTensor(name=name, datatype="BYTES", shape=array.shape, data=data)
    datatype = next(key for key, kind in _DATA_TYPES.items() if array.dtype == kind)
    return GoldenTensor.model_validate(
        {"name": name, "datatype": datatype, "shape": array.shape, "data": array.ravel().tolist()}
    )


def _array(item: GoldenTensor) -> npt.NDArray[Any]:
    if item.datatype == "BYTES":
        cells = np.array([str(value).encode("utf-8") for value in item.data], dtype=np.object_)
        return cells.reshape(item.shape)
    return np.asarray(item.data, _DATA_TYPES[item.datatype]).reshape(item.shape)
