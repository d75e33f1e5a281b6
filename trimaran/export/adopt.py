"""Takes an ONNX file that another tool exported as an artifact of ours: its outputs renamed, its padding proven.

The graph itself is the reference. It is not compared with trained weights, and the manifest says so.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimaran.core.artifact import Artifact, Check, Draft, Recipe
from trimaran.core.config import LONGEST_BY_DEFAULT
from trimaran.core.environment import tools
from trimaran.core.errors import UsageError
from trimaran.core.onnx_graph import check_graph, graph_facts
from trimaran.core.onnx_write import EXTERNAL_ABOVE_BYTES, write_model
from trimaran.core.progress import Progress
from trimaran.core.spec import ModelRef, Range, ShapeProfile
from trimaran.core.store import Store
from trimaran.core.tasks import task
from trimaran.export.checkpoint import PICKLES, SAFETENSORS
from trimaran.export.load import load_tokenizer, save_tokenizer
from trimaran.export.locate import locate
from trimaran.export.optimum_layout import OUTPUTS
from trimaran.export.pooled_graph import append_pooling
from trimaran.export.read_json import read_json
from trimaran.export.reference import hidden_act_of, signature_of
from trimaran.export.samples import sample_inputs
from trimaran.export.validate import prove_padding
from trimaran.runtime.onnxruntime_engine import Engine as OnnxEngine

if TYPE_CHECKING:
    import onnx_ir as ir

ENTRY = "model.onnx"
# The names that optimum and sentence-transformers give outputs, and ours. Other outputs are dropped.
_OUTPUTS = {
    **{name: {theirs: ours for ours, theirs in names.items()} for name, names in OUTPUTS.items()},
    "feature-extraction": {"last_hidden_state": "token_embeddings", "token_embeddings": "token_embeddings"},
}
# Tasks that the outputs tell by themselves, the first that fits.
_TELLING = {"sentence_embedding": "embedding", "last_hidden_state": "feature-extraction"}
_TOKEN_STATES = ("last_hidden_state", "token_embeddings")


def adopted_ref(path: Path, *, task_name: str = "auto", **settings: Any) -> ModelRef:
    """The model of an ONNX file, from config.json in its folder or in the one above. `settings` are those of `locate`.

    Raises UsageError where its inputs or outputs are not those of its task.
    """
    import onnx_ir as ir

    path = path.absolute()
    folder = next((parent for parent in (path.parent, path.parent.parent) if (parent / "config.json").is_file()), None)
    if folder is None:
        raise UsageError(
            f"There is no config.json beside {path}.", hint="Keep the file in the folder that the exporter wrote."
        )
    model = ir.load(path)
    if task_name == "auto" and not (folder / "modules.json").is_file():
        task_name = _task_of(model)
    ref = locate(str(folder), task_name=task_name, weights=path, **settings)
    graph_inputs = {str(value.name) for value in model.graph.inputs}
    fed = tuple(name for name in ref.inputs if name in graph_inputs)
    outputs = {str(value.name) for value in model.graph.outputs}
    names = _OUTPUTS.get(ref.task)
    if names is None:
        raise UsageError(
            f"An ONNX file of another exporter can be taken for {', '.join(_OUTPUTS)}, not for {ref.task}.",
            hint="Export it from its trained weights: trimaran export -m FOLDER.",
        )
    wanted = {spec.name for spec in signature_of(ref).outputs}
    answers = {names[name] for name in outputs & set(names)}
    if ref.task == "embedding" and outputs & set(_TOKEN_STATES):
        answers = wanted
    if wanted != answers or graph_inputs - set(ref.inputs) or not {"input_ids", "attention_mask"} <= graph_inputs:
        raise UsageError(
            f"{path} has inputs {', '.join(sorted(graph_inputs))} and outputs {', '.join(sorted(outputs))}; "
            f"{ref.task} of a {ref.family} wants {', '.join(ref.inputs)} and {' or '.join(names)}.",
            hint="Export it from its trained weights: trimaran export -m FOLDER.",
        )
    return ref.model_copy(update={"inputs": fed})


def adopt(
    path: Path,
    *,
    store: Store,
    progress: Progress,
    ref: ModelRef | None = None,
    profile: ShapeProfile | None = None,
) -> Artifact:
    """The ONNX file as an artifact. `ref` and `profile` are by default what the files beside it say."""
    import onnx_ir as ir

    path = path.absolute()
    ref = ref or adopted_ref(path)
    profile = profile or _profile(ref)
    recipe = Recipe(
        step="adopted",
        parameters={
            "model": ref.digest,
            "task": ref.task,
            "profile": profile.model_dump(mode="json"),
            "pooling": ref.pooling.model_dump(mode="json") if ref.pooling else None,
        },
        tools=tools("onnx", "onnxruntime", "transformers"),
    )

    def make(target: Path) -> Draft:
        model = ir.load(path)
        _rename(model, ref)
        check_graph(model)
        external = write_model(model, target / ENTRY, external_above_bytes=EXTERNAL_ABOVE_BYTES)
        tokenizer = load_tokenizer(ref)
        draft = Draft(
            name=ref.name,
            format="onnx",
            precision="fp32",
            backend="onnxruntime",
            task=ref.task,
            family=ref.family,
            signature=signature_of(ref),
            profile=profile,
            tokenizer=save_tokenizer(tokenizer, ref, target, vocabulary=ref.vocabulary),
            labels=ref.labels,
            entry=ENTRY,
            details={
                "source": str(path),
                "reference": "the graph itself; it was not compared with trained weights",
                "vocabulary": ref.vocabulary,
                "layers": ref.layers,
                "hidden": ref.hidden,
                "heads": ref.heads,
                "hidden_act": hidden_act_of(read_json(Path(ref.directory) / "config.json", what=ref.source)),
                "answers": dict(task(ref.task).facts(ref, tokenizer)),
                "external_weights": external,
                **graph_facts(model),
            },
        )
        return draft.model_copy(update={"checks": _proofs(draft, ref, target / ENTRY)})

    with progress.stage("adopt") as step:
        artifact = store.produce(recipe, make)
        step.outcome(f"{ref.family}, {ref.task}, {artifact.checks[0]}")
    return artifact


def onnx_file_of(reference: str) -> Path | None:
    """The ONNX file that a path names: itself, or `model.onnx` of a folder that an exporter wrote; None for others."""
    path = Path(reference).expanduser()
    if path.is_file():
        return path if path.suffix == ".onnx" else None
    return next((file for file in (path / ENTRY, path / "onnx" / ENTRY) if file.is_file()), None)


def graph_without_weights(source: str) -> Path | None:
    """The ONNX file to deploy from: one that is named, or that of a folder without trained weights; None for others."""
    path = onnx_file_of(source)
    if path is None or Path(source).expanduser() == path:
        return path
    trained = any((Path(source).expanduser() / name).is_file() for name in (*SAFETENSORS, *PICKLES))
    return None if trained else path


def _task_of(model: ir.Model) -> str:
    names = {value.name for value in model.graph.outputs}
    return next((name for output, name in _TELLING.items() if output in names), "auto")


def _profile(ref: ModelRef) -> ShapeProfile:
    longest = min(ref.default_sequence or ref.positions, ref.positions, LONGEST_BY_DEFAULT)
    return ShapeProfile(
        batch=Range(minimum=1, typical=1, maximum=32),
        sequence=Range(minimum=1, typical=min(128, longest), maximum=longest),
    )


def _rename(model: ir.Model, ref: ModelRef) -> None:
    """Gives the outputs of the task our names, in our order, and drops the others. Token vectors are pooled."""
    if ref.task == "embedding" and not any(value.name == "sentence_embedding" for value in model.graph.outputs):
        append_pooling(model, ref, next(value for value in model.graph.outputs if value.name in _TOKEN_STATES))
    names = _OUTPUTS[ref.task]
    outputs = {names[value.name]: value for value in model.graph.outputs if value.name in names}
    model.graph.outputs[:] = [outputs[spec.name] for spec in signature_of(ref).outputs]
    for name, value in outputs.items():
        value.name = name


def _proofs(draft: Draft, ref: ModelRef, path: Path) -> tuple[Check, ...]:
    """Shapes and types of the outputs, and that a text's answer depends neither on padding nor on its batch."""
    engine = OnnxEngine(str(path), threads=1)
    inputs = sample_inputs(ref, draft.tokenizer, 2, draft.profile.sequence.typical, vocabulary=ref.vocabulary)
    draft.signature.check_outputs(inputs, engine.infer(inputs))
    checks = prove_padding(
        engine.infer,
        draft,
        lambda batch, sequence, **kind: sample_inputs(
            ref, draft.tokenizer, batch, sequence, vocabulary=ref.vocabulary, **kind
        ),
    )
    engine.close()
    return checks
