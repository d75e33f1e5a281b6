"""A trained model becomes a validated ONNX artifact, beside the reference artifact it was proven against."""

from __future__ import annotations

import gc
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trimaran.artifact import Artifact, Check, Draft, Recipe
from trimaran.environment import tools, usable_cores
from trimaran.errors import ToolError, UsageError, first_line
from trimaran.export.load import checkpoint_facts, load_tokenizer, quiet, save_tokenizer
from trimaran.export.read_json import read_json
from trimaran.export.samples import sample_inputs
from trimaran.export.validate import ATOL, prove_padding, prove_parity
from trimaran.families import EXPORTERS, Exporter, family
from trimaran.onnx_graph import check_graph, graph_facts, rename_outputs, save_graph, share_equal_weights
from trimaran.progress import Progress
from trimaran.runtime.onnxruntime_engine import Engine as OnnxEngine
from trimaran.spec import ModelRef, ShapeProfile, Signature, TensorSpec
from trimaran.store import Store
from trimaran.tasks import outputs_of

ENTRY = "model.onnx"
DYNAMO_OPSET = 20
# torch's dynamo exporter calls inner values by operator (`embedding`, `logits`), and collides with outputs so named.
PREFIX = "output."


def reference(ref: ModelRef, profile: ShapeProfile, *, store: Store, progress: Progress) -> Artifact:
    """Eager PyTorch as an artifact: the model's identity and tokenizer; its weights stay where they are."""
    check_profile(ref, profile)
    recipe = Recipe(
        step="reference",
        parameters={"model": ref.model_dump(mode="json"), "profile": profile.model_dump()},
        tools=tools("torch", "transformers", "tokenizers"),
    )

    def make(folder: Path) -> Draft:
        (folder / "model_ref.json").write_text(ref.model_dump_json(indent=2) + "\n", encoding="utf-8")
        tokenizer = _tokenizer(ref)
        spec = save_tokenizer(tokenizer, ref, folder, vocabulary=ref.vocabulary)
        row = family(ref.family)
        return Draft(
            name=ref.name,
            format="torch",
            precision="fp32",
            backend="torch",
            task=ref.task,
            family=ref.family,
            signature=signature_of(ref),
            profile=profile,
            tokenizer=spec,
            labels=ref.labels,
            entry="model_ref.json",
            engine_options={"attention": "sdpa" if row.sdpa and "attentions" not in ref.extras else "eager"},
            details={
                "source": ref.source,
                "vocabulary": ref.vocabulary,
                "layers": ref.layers,
                "hidden": ref.hidden,
                "heads": ref.heads,
                **_model_facts(ref),
                "answers": answer_facts(ref, tokenizer),
            },
        )

    with progress.stage("reference") as step:
        artifact = store.produce(recipe, make)
        step.outcome(f"{ref.family}, {ref.task}, {ref.layers} layers of {ref.hidden}")
    return artifact


def export(
    parent: Artifact,
    *,
    store: Store,
    progress: Progress,
    atol: float = ATOL,
    exporter: Exporter | None = None,
    external_above_bytes: int | None = None,
) -> Artifact:
    """The reference's computation as one ONNX graph, proven equal over the corners of the profile.

    `exporter` takes torch's other exporter than the family's row names; nothing falls back to it by itself.
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
        from trimaran.export.torch_engine import Engine as TorchEngine
        from trimaran.export.wrappers import complete_module

        sample = _sampler(parent, ref)
        raw = folder / "raw"
        raw.mkdir()
        trace(
            complete_module(ref, attention="eager"), raw / ENTRY, parent.signature, sample, exporter=chosen, opset=opset
        )
        # Each step below holds the weights by itself: together they would be several times the checkpoint.
        gc.collect()
        shared_bytes = finish_graph(raw / ENTRY, folder / ENTRY, parent.signature, external_above_bytes)
        shutil.rmtree(raw)
        hygiene, facts = inspect_graph(folder / ENTRY)
        # A small model is proven sooner on one thread than the threads of two runtimes take to agree.
        threads = usable_cores() if parent.details.get("checkpoint_fp32_bytes", 0) > 50_000_000 else 1
        eager = TorchEngine(str(parent.entry_path), threads=threads, options=parent.engine_options)
        wanted = iter([eager.infer(sample(*shape)) for shape in parent.profile.corners()])
        eager.close()
        gc.collect()
        graph = OnnxEngine(str(folder / ENTRY), threads=threads)
        check = prove_parity(
            lambda inputs: next(wanted),
            graph.infer,
            parent.signature,
            parent.profile,
            sample,
            atol=atol,
            advance=lambda done, total: step.advance(done, total, "shapes proven"),
        )
        padding = prove_padding(graph.infer, parent, sample, atol=atol)
        graph.close()
        shutil.copy(parent.directory / "tokenizer.json", folder / "tokenizer.json")
        return Draft(
            **{
                **_inherited(parent),
                "format": "onnx",
                "backend": "onnxruntime",
                "entry": ENTRY,
                "engine_options": {},
                "checks": (check, *padding, *hygiene),
                "details": {**parent.details, "exporter": chosen, **facts, "shared_weight_bytes": shared_bytes},
            }
        )

    with progress.stage("export") as step:
        artifact = store.produce(recipe, make)
        step.outcome(f"{artifact.checks[0]}, {artifact.size_bytes / 1e6:.0f} MB")
    return artifact


def trace(
    module: Any,
    path: Path,
    signature: Signature,
    sample: Callable[[int, int], dict[str, Any]],
    *,
    exporter: Exporter,
    opset: int,
) -> None:
    """torch's own export, its outputs under a prefix; a large model's weights are files beside `path`."""
    import torch

    names = list(signature.input_names)
    inputs = sample(2, 8)
    try:
        with quiet(), torch.inference_mode():
            torch.onnx.export(
                module,
                tuple(torch.from_numpy(inputs[name]) for name in names),
                str(path),
                dynamo=exporter == "dynamo",
                opset_version=opset,
                input_names=names,
                output_names=[f"{PREFIX}{name}" for name in signature.output_names],
                **_dynamic(signature, exporter),
            )
    except (RuntimeError, ValueError, TypeError, IndexError, torch.onnx.errors.OnnxExporterError) as error:
        other = next(name for name in EXPORTERS if name != exporter)
        raise ToolError(
            f"torch's {exporter} exporter failed: {first_line(error)}",
            hint=f"The other one may do: --exporter {other}.",
        ) from error


def finish_graph(raw: Path, path: Path, signature: Signature, external_above_bytes: int | None) -> int:
    """Shares equal weights, names inputs, outputs and axes, writes; returns the bytes that sharing saved."""
    import onnx

    model = onnx.load(str(raw))
    shared = share_equal_weights(model)
    rename_outputs(model, PREFIX)
    _restore_inputs(model, signature)
    _name_axes(model, signature)
    save_graph(model, path, external_above_bytes=external_above_bytes)
    return shared


def _dynamic(signature: Signature, exporter: Exporter) -> dict[str, Any]:
    if exporter == "torchscript":
        return {
            "dynamic_axes": {
                name: {index: dim for index, dim in enumerate(spec.dims) if isinstance(dim, str)}
                for name, spec in (
                    *((spec.name, spec) for spec in signature.inputs),
                    *((f"{PREFIX}{spec.name}", spec) for spec in signature.outputs),
                )
            }
        }
    import torch

    axes = [
        {index: torch.export.Dim.DYNAMIC for index, dim in enumerate(spec.dims) if isinstance(dim, str)}
        for spec in signature.inputs
    ]
    # The module takes its inputs as *arrays, which torch.export sees as one argument.
    return {"dynamic_shapes": (tuple(axes),), "external_data": False, "verbose": False}


def _restore_inputs(model: Any, signature: Signature) -> None:
    """An input that nothing reads (segments, when only the embeddings are asked for) is dropped by the exporters."""
    import onnx

    values = {value.name: value for value in model.graph.input}
    del model.graph.input[:]
    for spec in signature.inputs:
        unread = onnx.helper.make_tensor_value_info(spec.name, onnx.TensorProto.INT64, spec.dims)
        model.graph.input.append(values.get(spec.name, unread))


def _name_axes(model: Any, signature: Signature) -> None:
    """The exporters name axes as they please; ours are the signature's."""
    specs = {spec.name: spec for spec in (*signature.inputs, *signature.outputs)}
    for value in (*model.graph.input, *model.graph.output):
        shape = value.type.tensor_type.shape
        if value.name not in specs or len(shape.dim) != len(specs[value.name].dims):
            continue
        for dim, wanted in zip(shape.dim, specs[value.name].dims, strict=True):
            if isinstance(wanted, str):
                dim.dim_param = wanted
            else:
                dim.dim_value = wanted
    del model.graph.value_info[:]


def inspect_graph(path: Path) -> tuple[tuple[Check, ...], dict[str, Any]]:
    """The checker's word, strict shape inference, and the operators that the graph is made of."""
    check_graph(path)
    checks = (Check(name="onnx checker and shape inference", observed="clean", limit="clean", comparison="=="),)
    return checks, graph_facts(path)


def signature_of(ref: ModelRef) -> Signature:
    names = ref.inputs or family(ref.family).inputs
    ids = tuple(TensorSpec(name=name, dtype="int64", dims=("batch", "sequence")) for name in names)
    return Signature(inputs=ids, outputs=outputs_of(ref))


def answer_facts(ref: ModelRef, tokenizer: Any) -> dict[str, Any]:
    """What `runtime.answers` needs beyond the labels; a task that cannot be answered is refused here."""
    if ref.task == "fill-mask":
        if tokenizer.mask_token_id is None:
            raise UsageError(f"The tokenizer of {ref.source} has no mask token, which fill-mask fills.")
        return {"mask_id": int(tokenizer.mask_token_id)}
    if ref.task == "zero-shot-classification":
        entailing = [index for index, label in enumerate(ref.labels) if label.lower().startswith("entail")]
        if not entailing:
            raise UsageError(
                f"None of the labels of {ref.source} ({', '.join(ref.labels)}) is entailment.",
                hint="Zero-shot needs an NLI head; name its labels in id2label of config.json.",
            )
        return {"entailment": entailing[0], "contradiction": -1 if entailing[0] == 0 else 0}
    return {"activation": ref.activation} if ref.task in ("text-classification", "rerank") else {}


def check_profile(ref: ModelRef, profile: ShapeProfile) -> None:
    if profile.sequence.maximum > ref.positions:
        raise UsageError(
            f"Sequence {profile.sequence.maximum} is beyond the {ref.positions} positions of {ref.source}.",
            hint=f"Use --sequence with a maximum of at most {ref.positions}.",
            wanted=profile.sequence.maximum,
            found=ref.positions,
        )


def model_ref_of(artifact: Artifact) -> ModelRef:
    if artifact.format != "torch":
        raise UsageError(f"{artifact.directory.name} is a {artifact.format} artifact; a reference is wanted here.")
    return ModelRef.model_validate_json(artifact.entry_path.read_text(encoding="utf-8"))


def _inherited(parent: Artifact) -> dict[str, Any]:
    return parent.model_dump(include=set(Draft.model_fields))


def _sampler(parent: Artifact, ref: ModelRef) -> Any:
    return lambda batch, sequence, **kind: sample_inputs(
        ref, parent.tokenizer, batch, sequence, vocabulary=ref.vocabulary, **kind
    )


def _tokenizer(ref: ModelRef) -> Any:
    if ref.module:
        from trimaran.export.module import user_tokenizer

        return user_tokenizer(ref)
    return load_tokenizer(ref)


def _model_facts(ref: ModelRef) -> dict[str, Any]:
    """What the manifest says of the checkpoint, and what the fusion receipt must know of the config."""
    if ref.module:
        return {}
    config = read_json(Path(ref.directory) / "config.json", what=ref.source)
    keys = ("hidden_act", "activation", "activation_function", "hidden_activation", "ff_activation")
    act = next((str(config[key]) for key in keys if isinstance(config.get(key), str)), "gelu")
    return {"hidden_act": act, **checkpoint_facts(ref)}
