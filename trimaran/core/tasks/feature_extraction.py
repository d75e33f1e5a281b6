"""Feature extraction: one vector a token, and all layers and attentions when asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trimaran.core.distances import Answers, by_token, cosine_distances
from trimaran.core.late_interaction import SIMILARITY
from trimaran.core.metrics import Metric
from trimaran.core.spec import ModelRef, TensorSpec
from trimaran.core.tasks.library import Library, as_pipelines_read
from trimaran.core.tasks.shared import MAX_ABS_DIFFERENCE, RELATIVE_CHANGE, distance_limits
from trimaran.core.tasks.task import (
    FLOAT_NOISE,
    AnswerContext,
    Head,
    Loss,
    Task,
    WireTensors,
    first_text,
    levels,
    tensor,
)
from trimaran.runtime.sides import QUERY
from trimaran.runtime.text import Text
from trimaran.runtime.wire import PROMPT


def _outputs(ref: ModelRef) -> tuple[TensorSpec, ...]:
    extras = {
        "hidden_states": tensor("hidden_states", ref.layers + 1, "sequence", ref.hidden),
        "attentions": tensor("attentions", ref.layers, ref.heads, "sequence", "sequence"),
    }
    width = ref.width if ref.multi_vector else ref.hidden
    return (tensor("token_embeddings", "sequence", width), *(extras[name] for name in ref.extras))


def _finish(output: Any, inputs: Mapping[str, Any], ref: ModelRef) -> Any:
    import torch

    extras = [torch.stack(tuple(output[name]), dim=1) for name in ref.extras]
    return (output.last_hidden_state, *extras) if extras else output.last_hidden_state


def _from_wire(numbers: str, tensors: WireTensors, other: WireTensors) -> Answers:
    vectors = tensors["TOKEN_EMBEDDINGS"].astype(np.float32, copy=True)
    for row, length in zip(vectors, tensors["LENGTH"][:, 0], strict=True):
        row[length:] = np.nan
    return {"token_embeddings": vectors}


def _column() -> Any:
    import pyarrow as pa

    vectors = pa.list_(pa.list_(pa.float32()))
    return pa.struct({"tokens": pa.list_(pa.string()), "token_embeddings": vectors})


def _ask(library: Any, item: Any) -> dict[str, Any]:
    request = as_pipelines_read(item)
    # Its pipeline hands what it is given to the tokenizer as one text.
    encoded = library.tokenizer(**request, truncation=True) if isinstance(request, dict) else None
    if encoded is None:
        return {"token_embeddings": np.asarray(library(request, truncation=True)[0])}
    import torch

    with torch.inference_mode():
        output = library.model(**{name: torch.tensor([row]) for name, row in encoded.items()})
    return {"token_embeddings": output.last_hidden_state[0].numpy()}


def _facts(ref: ModelRef, tokenizer: Any) -> dict[str, Any]:
    late = ref.multi_vector
    return {"skipped_ids": late.skipped_ids, SIMILARITY: late.similarity} if late else {}


def _asked(context: AnswerContext, texts: Sequence[Text]) -> Sequence[Text]:
    """A late-interaction model is judged on both sides: every other text is a query."""
    if context.encoder.sides is None:
        return texts
    return [(first_text(text), QUERY) if index % 2 else first_text(text) for index, text in enumerate(texts)]


def _ask_late(library: Any, text: str, *, prompt: str | None = None) -> dict[str, Any]:
    encode = library.encode_query if prompt == QUERY else library.encode_document
    return {"token_embeddings": encode(text, prompt_name=prompt, show_progress_bar=False, convert_to_numpy=True)}


def _numbers(answer: dict[str, Any]) -> dict[str, Any]:
    return {"the token vectors": answer["token_embeddings"]}


_distances = by_token(cosine_distances, "token_embeddings")
_worst_distances = by_token(lambda before, after: cosine_distances(before, after).max(initial=0.0), "token_embeddings")

TASK = Task(
    name="feature-extraction",
    describe="one vector a token, also of late-interaction models; all layers and attentions when asked",
    model_class="AutoModel",
    outputs=_outputs,
    head=Head(_finish, keywords=lambda ref: {f"output_{name}": True for name in ref.extras}),
    bare=True,
    automatic=False,
    library=Library(
        pipeline="feature-extraction",
        ask=_ask,
        numbers=_numbers,
        cause="the layer that is read",
    ),
    late_library=Library(
        sentence="MultiVectorEncoder",
        ask=_ask_late,
        numbers=_numbers,
        options=({}, {PROMPT: QUERY}),
        cause="the expansion of queries, the skip list or the layers behind the encoder",
    ),
    facts=_facts,
    asked=_asked,
    metrics=(
        Metric("mean_cosine_distance", _distances),
        Metric("worst_cosine_distance", _worst_distances, kind="worst"),
        Metric("tail_cosine_distance", _distances, kind="tail"),
        MAX_ABS_DIFFERENCE,
    ),
    change=RELATIVE_CHANGE,
    gates=levels(FLOAT_NOISE, **distance_limits()),
    headline="mean_cosine_distance",
    loss=Loss("1−cos by token", _distances),
    from_wire=_from_wire,
    # Vectors of every token are large: a few texts say as much.
    most_requests=8,
    on_server="padding removed",
    column=_column,
    bulk_part_rows=256,
)
