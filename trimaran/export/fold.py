"""Computes at export what depends on weights and constants only: transposed weights, scales, offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from trimaran.core.onnx_graph import all_nodes

Array = npt.NDArray[Any]
# A computed constant may be this much larger than its inputs. An expanded mask would only make the file larger.
GROWTH_BYTES = 1 << 16
_RANDOM = ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial")


def fold_constants(model: Any, weights: dict[str, Array]) -> int:
    """Replaces nodes by their values, which are added to `weights`; returns the number of replaced nodes.

    torch's own folding copies all weights at once. Here a transposed weight is a view of the original, and is copied
    only when it is written.
    """
    from onnx.reference import ReferenceEvaluator

    graph = model.graph
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    known: dict[str, Array] = dict(weights)
    tied = tied_transposes(graph, weights)
    folded = []
    for node in graph.node:
        if node.op_type == "Constant":
            known[node.output[0]] = _constant(node)
        elif node.name not in tied and _depends_on(node, known):
            values = ReferenceEvaluator(node, opsets=opsets).run(
                None, {name: known[name] for name in node.input if name}
            )
            read = sum(known[name].nbytes for name in node.input if name)
            if all(_storable(value) and value.nbytes <= read + GROWTH_BYTES for value in values):
                known.update(zip(node.output, (np.asarray(value) for value in values), strict=True))
                folded.append(node)
    for node in folded:
        graph.node.remove(node)
    needed = read_names(graph)
    made = {name for node in folded for name in node.output}
    for name in [*weights, *made]:
        if name in needed:
            weights[name] = known[name]
        else:
            weights.pop(name, None)
    for node in [node for node in graph.node if node.op_type == "Constant" and node.output[0] not in needed]:
        graph.node.remove(node)
    return len(folded)


def tied_transposes(graph: Any, weights: Mapping[str, Array]) -> set[str]:
    """Names of the nodes that transpose an embedding table. Computed here, the table would be stored twice.

    The head of a masked LM is tied to its embeddings. Runtimes transpose the table once, when they load it.
    """
    looked_up = {node.input[0] for node in all_nodes(graph) if node.op_type == "Gather"} & set(weights)
    return {node.name for node in graph.node if node.op_type == "Transpose" and node.input[0] in looked_up}


def read_names(graph: Any) -> set[str]:
    """Names of all values that a node reads or that are outputs of the graph."""
    return {name for node in all_nodes(graph) for name in node.input} | {output.name for output in graph.output}


def _depends_on(node: Any, known: Iterable[str]) -> bool:
    """Whether the node gives the same value in every call: known inputs only, no subgraph, nothing random."""
    plain = node.domain in ("", "ai.onnx") and node.op_type not in _RANDOM
    return (
        plain
        and any(node.input)
        and all(name in known or not name for name in node.input)
        and not any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute)
    )


def _storable(value: Any) -> bool:
    return isinstance(value, (np.ndarray, np.generic)) and value.dtype != object


def _constant(node: Any) -> Array:
    from onnx.reference import ReferenceEvaluator

    return np.asarray(ReferenceEvaluator(node).run(None, {})[0])
