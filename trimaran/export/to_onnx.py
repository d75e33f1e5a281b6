"""Exports a trained model to an ONNX artifact and proves it equal to eager PyTorch."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from trimaran.core.artifact import Artifact, Check, Draft, Recipe
from trimaran.core.choices import Exporter
from trimaran.core.environment import tools, usable_cores
from trimaran.core.families import family
from trimaran.core.onnx_graph import check_graph, graph_facts
from trimaran.core.onnx_write import EXTERNAL_ABOVE_BYTES, write_model
from trimaran.core.progress import Progress, Step
from trimaran.core.spec import ModelRef, Signature
from trimaran.core.store import Store
from trimaran.export.reference import model_ref_of
from trimaran.export.samples import sample_inputs
from trimaran.export.trace import Array, trace
from trimaran.export.validate import ATOL, Infer, prove_padding, prove_parity
from trimaran.judging.equality import Arrays
from trimaran.runtime.onnxruntime_engine import Engine as OnnxEngine

ENTRY = "model.onnx"
DYNAMO_OPSET = 20
SLICE_TOKENS = 2048


def export(
    parent: Artifact,
    *,
    store: Store,
    progress: Progress,
    atol: float = ATOL,
    exporter: Exporter | None = None,
    external_above_bytes: int = EXTERNAL_ABOVE_BYTES,
    threads: int | None = None,
) -> Artifact:
    """The computation of the reference artifact as one ONNX graph, proven equal at the corners of the profile.

    `exporter` replaces the exporter of the family's row; there is no fallback from one to the other. `threads` are for
    the proof: all cores, unless something else runs at the same time.
    """
    ref = model_ref_of(parent)
    row = family(ref.family)
    chosen = exporter or row.exporter
    opset = row.opset if chosen == "torchscript" else max(row.opset, DYNAMO_OPSET)
    recipe = Recipe(
        step="export",
        parents=(parent.digest,),
        parameters={"exporter": chosen, "opset": opset, "atol": atol, "external_above_bytes": external_above_bytes},
        tools=tools("torch", "transformers", "onnx", "onnxruntime"),
    )

    def make(folder: Path) -> Draft:
        sample = _sampler(parent, ref)
        # Each step holds a copy of the weights, so the steps run one after the other.
        facts = write_traced(ref, parent.signature, sample, folder / ENTRY, chosen, opset, external_above_bytes)
        gc.collect()
        proofs = prove(parent, folder / ENTRY, sample, atol, step, threads=threads or usable_cores())
        return parent.derive(
            folder,
            format="onnx",
            backend="onnxruntime",
            entry=ENTRY,
            engine_options={},
            checks=(*proofs, CLEAN),
            details={"exporter": chosen, **facts},
        )

    with progress.stage("export") as step:
        artifact = store.produce(recipe, make)
        step.outcome(f"{artifact.checks[0]}, {artifact.size_bytes / 1e6:.0f} MB")
    return artifact


CLEAN = Check(name="onnx checker and shape inference", observed="clean", limit="clean", comparison="==")


def write_traced(
    ref: ModelRef,
    signature: Signature,
    sample: Callable[[int, int], dict[str, Array]],
    path: Path,
    exporter: Exporter,
    opset: int,
    external_above_bytes: int,
) -> dict[str, Any]:
    """Traces the model, checks the graph, writes it; returns the graph's facts for the manifest."""
    from trimaran.export.wrappers import complete_module

    module = complete_module(ref, attention="eager", traced=True)
    model, shared_bytes = trace(module, signature, sample, exporter=exporter, opset=opset)
    check_graph(model)
    external = write_model(model, path, external_above_bytes=external_above_bytes)
    return {
        **graph_facts(model),
        "external_weights": external,
        "shared_weight_bytes": shared_bytes,
        "traced_attention": "eager",
    }


def prove(
    parent: Artifact, path: Path, sample: Callable[..., Arrays], atol: float, step: Step, *, threads: int
) -> tuple[Check, ...]:
    """Compares the graph with eager PyTorch, with itself under more padding, and a text alone with its batch.

    Only one of the two engines is in memory at a time.
    """
    from trimaran.export.torch_engine import TorchEngine

    # For a small model one thread is faster: the thread pools of two runtimes would compete.
    threads = threads if parent.details.get("checkpoint_fp32_bytes", 0) > 50_000_000 else 1
    eager = TorchEngine(str(parent.entry_path), threads=threads, options=parent.engine_options)
    answers = iter([in_slices(eager.infer, sample(*shape)) for shape in parent.profile.corners()])
    eager.close()
    gc.collect()
    graph = OnnxEngine(str(path), threads=threads)
    check = prove_parity(
        lambda inputs: next(answers),
        graph.infer,
        parent.signature,
        parent.profile,
        sample,
        atol=atol,
        advance=lambda done, total: step.advance(done, total, "shapes proven"),
    )
    padding = prove_padding(graph.infer, parent, sample, atol=atol)
    graph.close()
    return (check, *padding)


def in_slices(infer: Infer, inputs: Arrays) -> Arrays:
    """Eager's answer for a large batch, computed a few rows at a time; the rows keep their padding.

    Rows are independent. For a whole batch most of the time would go into allocating memory for activations.
    """
    rows, width = next(iter(inputs.values())).shape
    size = max(1, SLICE_TOKENS // width)
    parts = [infer({name: array[i : i + size] for name, array in inputs.items()}) for i in range(0, rows, size)]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _sampler(parent: Artifact, ref: ModelRef) -> Any:
    return lambda batch, sequence, **kind: sample_inputs(
        ref, parent.tokenizer, batch, sequence, vocabulary=ref.vocabulary, **kind
    )
