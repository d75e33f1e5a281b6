"""Exports a trained model to an ONNX artifact and proves it equal to eager PyTorch."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from trimaran.core.artifact import Artifact, Check, Draft, Recipe
from trimaran.core.backends import Arrays
from trimaran.core.call_memory import budget_bytes, model_size, proof_shapes
from trimaran.core.choices import Exporter
from trimaran.core.corpus import encoder_of, shipped_texts
from trimaran.core.environment import tools, usable_cores
from trimaran.core.errors import ParityError
from trimaran.core.families import MODULE, family
from trimaran.core.onnx_graph import check_graph, graph_facts
from trimaran.core.onnx_write import EXTERNAL_ABOVE_BYTES, write_model
from trimaran.core.progress import Progress, Step
from trimaran.core.proof_effort import effort_for
from trimaran.core.small_vectors import RANGES, Vectors, ranges_of, ranges_to_text
from trimaran.core.spec import ModelRef, Signature
from trimaran.core.store import Store
from trimaran.core.tasks import task
from trimaran.export.reference import model_ref_of
from trimaran.export.samples import sample_inputs
from trimaran.export.trace import trace
from trimaran.export.validate import ATOL, RunGraph, prove_equal_lengths, prove_padding, prove_parity
from trimaran.judging.judgement import UNPADDED
from trimaran.runtime.onnxruntime_engine import Engine as OnnxEngine
from trimaran.runtime.text import Array, infer_rows

ENTRY = "model.onnx"
DYNAMO_OPSET = 20
SLICE_TOKENS = 2048
# Texts that share a call when the ranges of dimensions are taken.
RANGE_BATCH = 8


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
        parameters={
            "exporter": chosen,
            "opset": opset,
            "atol": atol,
            "external_above_bytes": external_above_bytes,
            **({RANGES: effort_for(parent.details).range_texts} if task(ref.task).pools else {}),
        },
        tools=tools("torch", "transformers", "onnx", "onnxruntime"),
    )

    def make(folder: Path) -> Draft:
        sample = _sampler(parent, ref)
        # Each step holds a copy of the weights, so the steps run one after the other.
        facts = write_traced(ref, parent.signature, sample, folder / ENTRY, chosen, opset, external_above_bytes)
        gc.collect()
        noted: dict[str, str] = {}
        proofs = prove(parent, folder / ENTRY, sample, atol, step, threads=threads or usable_cores(), noted=noted)
        if task(ref.task).pools:
            facts[RANGES] = ranges_to_text(calibrated_ranges(parent, folder / ENTRY, threads or usable_cores()))
        return parent.derive(
            folder,
            format="onnx",
            backend="onnxruntime",
            entry=ENTRY,
            engine_options={},
            checks=(*proofs, CLEAN),
            details={"exporter": chosen, **facts, **noted},
        )

    with progress.stage("export") as step:
        artifact = store.produce(recipe, make)
        step.outcome(f"{artifact.checks[0]}, {artifact.size_bytes / 1e6:.0f} MB")
        if UNPADDED in artifact.details:
            progress.note(artifact.details[UNPADDED])
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
    parent: Artifact,
    path: Path,
    sample: Callable[..., Arrays],
    atol: float,
    step: Step,
    *,
    threads: int,
    noted: dict[str, str] | None = None,
) -> tuple[Check, ...]:
    """Compares the graph with eager PyTorch, with itself under more padding, and a text alone with its batch.

    Only one of the two engines is in memory at a time. A module of the user's own may change its answers with padding:
    `noted` then says so, and the artifact is judged and served in rows of equal length.
    """
    from trimaran.export.torch_engine import TorchEngine

    # For a small model one thread is faster: the thread pools of two runtimes would compete.
    threads = threads if parent.details.get("checkpoint_fp32_bytes", 0) > 50_000_000 else 1
    eager = TorchEngine(str(parent.entry_path), threads=threads, options=parent.engine_options)
    budget = budget_bytes()
    most_tokens = effort_for(parent.details).corner_tokens
    shapes = proof_shapes(model_size(parent.details), parent.profile, budget, most_tokens=most_tokens)
    answers = iter([in_slices(eager.infer, sample(*shape)) for shape in shapes.shapes])
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
        shapes=shapes,
    )
    try:
        padding: tuple[Check, ...] = prove_padding(graph.infer, parent, sample, atol=atol, budget=budget)
    except ParityError as error:
        if parent.family != MODULE.name or noted is None:
            raise
        if parent.profile.sequence.minimum > 1:
            error.hint = (
                f"{_PACKED_HINT} Or allow texts of one token: --sequence 1 …; it is then served without padding."
            )
            raise
        padding = (prove_equal_lengths(graph.infer, sample, parent.profile.sequence.typical, atol=atol),)
        noted[UNPADDED] = (
            f"The module's answers change with padding (by {error.observed:.2g}): it is proven and served in rows of "
            f"equal length. {_PACKED_HINT}"
        )
    graph.close()
    return (check, *padding)


_PACKED_HINT = "With torch.nn.utils.rnn.pack_padded_sequence a recurrent module does not read padding."


def calibrated_ranges(parent: Artifact, path: Path, threads: int) -> Vectors:
    """The least and the greatest value of each dimension over calibration texts, for 8-bit vectors."""
    graph, encoder = OnnxEngine(str(path), threads=threads), encoder_of(parent)
    rows = encoder.rows(shipped_texts("calibration")[: effort_for(parent.details).range_texts])
    vectors = infer_rows(graph.infer, encoder, rows, policy="equal-length", maximum_batch=RANGE_BATCH)["embedding"]
    graph.close()
    return ranges_of(vectors)


def in_slices(infer: RunGraph, inputs: Arrays) -> Arrays:
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
