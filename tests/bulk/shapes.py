"""An engine that meets ever new shapes, as a long run does, in a process of its own."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.tiny import WORDS, tiny_artifact
from trimaran.bulk.worker import bulk_options
from trimaran.core.backends import open_session
from trimaran.judging.probe import resident_bytes

# Each width is a kind of kernel of its own, made for every shape.
WIDTHS = tuple(range(48, 144, 8))
FEW, MANY = 400, 900
UNBOUNDED = 1_000_000


def growth(folder: str, bounded: bool) -> int:
    """Bytes by which the process grew from the first `FEW` shapes to all `MANY`."""
    artifact = tiny_artifact(Path(folder), backend="openvino")
    write_layers(artifact.entry_path)
    unbounded = artifact.model_copy(update={"engine_options": {"CPU_RUNTIME_CACHE_CAPACITY": UNBOUNDED}})
    opened = bulk_options(artifact, 1) if bounded else unbounded
    shapes = [(rows, length) for length in range(4, 36) for rows in range(1, 31)]
    order = np.random.default_rng(0).permutation(len(shapes))[:MANY]
    with open_session(opened, threads=1) as session:
        session.infer(_inputs(*shapes[-1]))
        before = 0
        for done, index in enumerate(order):
            if done == FEW:
                before = resident_bytes()
            session.infer(_inputs(*shapes[index]))
        return resident_bytes() - before


def write_layers(path: Path) -> None:
    """Matrix products, for which the engine makes kernels by shape; the tiny world's own graph has none."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    generator = np.random.default_rng(3)
    sizes = [(len(WORDS), WIDTHS[0]), *pairwise(WIDTHS)]
    weights = [generator.standard_normal(size).astype(np.float32) for size in sizes]
    nodes = [helper.make_node("Gather", ["w0", "input_ids"], ["h0"])]
    for layer in range(1, len(weights)):
        nodes.append(helper.make_node("MatMul", [f"h{layer - 1}", f"w{layer}"], [f"m{layer}"]))
        nodes.append(helper.make_node("Softmax", [f"m{layer}"], [f"h{layer}"], axis=-1))
    nodes.append(helper.make_node("ReduceMean", [nodes[-1].output[0]], ["embedding"], axes=[1], keepdims=0))
    ids = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "sequence"])
        for name in ("input_ids", "attention_mask")
    ]
    outputs = [helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["batch", WIDTHS[-1]])]
    tables = [numpy_helper.from_array(array, f"w{place}") for place, array in enumerate(weights)]
    graph = helper.make_graph(nodes, "layers", ids, outputs, tables)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(path))


def _inputs(rows: int, length: int) -> dict[str, npt.NDArray[Any]]:
    ids = np.ones((rows, length), np.int64)
    return {"input_ids": ids, "attention_mask": ids}
