"""A trained model becomes a validated ONNX artifact, beside the reference artifact it was proven against."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

from trimaran.artifact import Artifact, Check, Draft, Recipe
from trimaran.environment import tools
from trimaran.errors import ToolError, UsageError
from trimaran.export.load import load_tokenizer, quiet, save_tokenizer
from trimaran.export.samples import sample_inputs
from trimaran.export.validate import ATOL, prove_parity
from trimaran.families import Family, family
from trimaran.progress import Progress
from trimaran.runtime.onnxruntime_engine import Engine as OnnxEngine
from trimaran.spec import ModelRef, ShapeProfile, Signature, TensorSpec
from trimaran.store import Store
from trimaran.tasks import task

ENTRY = "model.onnx"


def reference(ref: ModelRef, profile: ShapeProfile, *, store: Store, progress: Progress) -> Artifact:
    """Eager PyTorch as an artifact: the model's identity and tokenizer; its weights stay where they are."""
    check_profile(ref, profile)
    recipe = Recipe(
        step="reference",
        parameters={"model": ref.model_dump(mode="json"), "profile": profile.model_dump()},
        tools=tools("torch", "transformers", "tokenizers"),
    )

    def make(folder: Path) -> Draft:
        vocabulary = _config_vocabulary(ref)
        (folder / "model_ref.json").write_text(ref.model_dump_json(indent=2) + "\n", encoding="utf-8")
        spec = save_tokenizer(load_tokenizer(ref), ref, folder, vocabulary=vocabulary)
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
            engine_options={"attention": "sdpa"},
            details={
                "source": ref.source,
                "vocabulary": vocabulary,
                "layers": ref.layers,
                "hidden": ref.hidden,
                "heads": ref.heads,
            },
        )

    with progress.stage("reference") as step:
        artifact = store.produce(recipe, make)
        step.outcome(f"{ref.family}, {ref.task}, {ref.layers} layers of {ref.hidden}")
    return artifact


def export(parent: Artifact, *, store: Store, progress: Progress, atol: float = ATOL) -> Artifact:
    """The reference's computation as one ONNX graph, proven equal over the corners of the profile."""
    ref = model_ref_of(parent)
    row = family(ref.family)
    recipe = Recipe(
        step="export",
        parents=(parent.digest,),
        parameters={"exporter": row.exporter, "opset": row.opset, "atol": atol},
        tools=tools("torch", "transformers", "onnx", "onnxruntime"),
    )

    def make(folder: Path) -> Draft:
        from trimaran.export.torch_engine import Engine as TorchEngine
        from trimaran.export.wrappers import complete_module

        sample = _sampler(parent, ref)
        write_graph(complete_module(ref, attention="eager"), folder / ENTRY, parent.signature, row, sample(2, 8))
        eager = TorchEngine(str(parent.entry_path), threads=1, options=parent.engine_options)
        graph = OnnxEngine(str(folder / ENTRY), threads=1)
        check = prove_parity(
            eager.infer,
            graph.infer,
            parent.signature,
            parent.profile,
            sample,
            atol=atol,
            advance=lambda done, total: step.advance(done, total, "shapes proven"),
        )
        shutil.copy(parent.directory / "tokenizer.json", folder / "tokenizer.json")
        hygiene, facts = inspect_graph(folder / ENTRY)
        return Draft(
            **{
                **_inherited(parent),
                "format": "onnx",
                "backend": "onnxruntime",
                "entry": ENTRY,
                "engine_options": {},
                "checks": (check, *hygiene),
                "details": {**parent.details, "exporter": row.exporter, "opset": row.opset, **facts},
            }
        )

    with progress.stage("export") as step:
        artifact = store.produce(recipe, make)
        step.outcome(f"{artifact.checks[0]}, {artifact.size_bytes / 1e6:.0f} MB")
    return artifact


def write_graph(module: Any, path: Path, signature: Signature, row: Family, inputs: dict[str, Any]) -> None:
    import torch

    names = list(signature.input_names)
    axes = {
        spec.name: {index: dim for index, dim in enumerate(spec.dims) if isinstance(dim, str)}
        for spec in (*signature.inputs, *signature.outputs)
    }
    arguments = tuple(torch.from_numpy(inputs[name]) for name in names)
    try:
        with quiet(), torch.inference_mode():
            torch.onnx.export(
                module,
                arguments,
                str(path),
                dynamo=row.exporter == "dynamo",
                opset_version=row.opset,
                input_names=names,
                output_names=list(signature.output_names),
                dynamic_axes=axes,
            )
    except (RuntimeError, ValueError, TypeError, torch.onnx.errors.OnnxExporterError) as error:
        raise ToolError(
            f"torch's {row.exporter} exporter failed on {row.name}: {str(error).splitlines()[0]}"
        ) from error


def inspect_graph(path: Path) -> tuple[tuple[Check, ...], dict[str, Any]]:
    """The checker's word, strict shape inference, and the operators that the graph is made of."""
    import onnx

    onnx.checker.check_model(str(path), full_check=True)
    graph = onnx.load(str(path), load_external_data=False).graph
    operators = Counter(node.op_type for node in graph.node)
    checks = (Check(name="onnx checker and shape inference", observed="clean", limit="clean", comparison="=="),)
    return checks, {"operators": dict(sorted(operators.items()))}


def signature_of(ref: ModelRef) -> Signature:
    ids = tuple(TensorSpec(name=name, dtype="int64", dims=("batch", "sequence")) for name in family(ref.family).inputs)
    return Signature(inputs=ids, outputs=task(ref.task).outputs(ref.hidden, len(ref.labels)))


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
    vocabulary = int(parent.details["vocabulary"])
    return lambda batch, sequence: sample_inputs(ref, parent.tokenizer, batch, sequence, vocabulary=vocabulary)


def _config_vocabulary(ref: ModelRef) -> int:
    import json

    config = json.loads((Path(ref.directory) / "config.json").read_text(encoding="utf-8"))
    return int(config["vocab_size"])
