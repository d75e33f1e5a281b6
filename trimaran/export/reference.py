"""Eager PyTorch as an artifact: what a model is, what it takes and gives, and how its answers are read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trimaran.core.artifact import Artifact, Draft, Recipe
from trimaran.core.call_memory import ModelSize, budget_bytes, require_memory
from trimaran.core.environment import tools
from trimaran.core.errors import UsageError
from trimaran.core.families import STATIC, family
from trimaran.core.progress import Progress
from trimaran.core.spec import ModelRef, ShapeProfile, Signature, TensorSpec
from trimaran.core.store import Store
from trimaran.core.tasks import task
from trimaran.export.checkpoint import checkpoint_facts
from trimaran.export.load import inputs_fed, load_tokenizer, save_tokenizer
from trimaran.export.model_config import encoder_section
from trimaran.export.read_json import read_json

# Raised when texts are read differently, so that references made before are not reused. 2: segment ids and lower-casing
# as the model's own library has them.
_READING = 2
# Of generators that sentence-transformers reads: 3: texts in the chat template.
_READING_GENERATORS = 3
# Of fill-mask: 4: the graph also gives the probability of every token at the mask.
_READING_MASKS = 4


def reference(ref: ModelRef, profile: ShapeProfile, *, store: Store, progress: Progress) -> Artifact:
    """Eager PyTorch as an artifact: the model's identity and tokenizer; its weights stay where they are."""
    check_profile(ref, profile)
    recipe = reference_recipe(ref, profile)

    def make(folder: Path) -> Draft:
        tokenizer = _tokenizer(ref)
        answers = dict(task(ref.task).facts(ref, tokenizer))
        mask_id = None if ref.module else answers.get("mask_id")
        fed = ref.model_copy(update={"inputs": inputs_fed(ref, tokenizer), "mask_id": mask_id})
        (folder / "model_ref.json").write_text(fed.model_dump_json(indent=2) + "\n", encoding="utf-8")
        spec = save_tokenizer(tokenizer, fed, folder, vocabulary=ref.vocabulary)
        row = family(ref.family)
        return Draft(
            name=ref.name,
            format="torch",
            precision="fp32",
            backend="torch",
            task=ref.task,
            family=ref.family,
            signature=signature_of(fed),
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
                "answers": answers,
            },
        )

    with progress.stage("reference") as step:
        artifact = store.produce(recipe, make)
        step.outcome(f"{ref.family}, {ref.task}, {ref.layers} layers of {ref.hidden}")
    return artifact


def reference_recipe(ref: ModelRef, profile: ShapeProfile) -> Recipe:
    return Recipe(
        step="reference",
        parameters={"model": ref.model_dump(mode="json"), "profile": profile.model_dump(), "reading": _reading(ref)},
        tools=tools("torch", "transformers", "tokenizers"),
    )


def _reading(ref: ModelRef) -> int:
    chats = family(ref.family).generator and bool(task(ref.task).library.sentence)
    if ref.task == "fill-mask":
        return _READING_MASKS
    return _READING_GENERATORS if chats else _READING


def signature_of(ref: ModelRef) -> Signature:
    names = ref.inputs or family(ref.family).inputs
    ids = tuple(TensorSpec(name=name, dtype="int64", dims=("batch", "sequence")) for name in names)
    return Signature(inputs=ids, outputs=task(ref.task).outputs(ref))


def check_profile(ref: ModelRef, profile: ShapeProfile) -> None:
    if profile.sequence.maximum > ref.positions:
        raise UsageError(
            f"Sequence {profile.sequence.maximum} is beyond the {ref.positions} positions of {ref.source}.",
            hint=f"Use --sequence with a maximum of at most {ref.positions}.",
            wanted=profile.sequence.maximum,
            found=ref.positions,
        )
    require_memory(ModelSize(ref.heads, ref.hidden), profile, budget_bytes())


def model_ref_of(artifact: Artifact) -> ModelRef:
    if artifact.format != "torch":
        raise UsageError(f"{artifact.directory.name} is a {artifact.format} artifact; a reference is wanted here.")
    return ModelRef.model_validate_json(artifact.entry_path.read_text(encoding="utf-8"))


def _tokenizer(ref: ModelRef) -> Any:
    if ref.module:
        from trimaran.export.module import user_tokenizer

        return user_tokenizer(ref)
    return load_tokenizer(ref)


def _model_facts(ref: ModelRef) -> dict[str, Any]:
    """What the manifest says of the checkpoint, and what the fusion receipt must know of the config."""
    if ref.module:
        return {}
    if ref.family == STATIC.name:
        return checkpoint_facts(Path(ref.directory), ref.source)
    config = read_json(Path(ref.directory) / "config.json", what=ref.source)
    section = encoder_section(config, ref.family, ref.source)
    return {"hidden_act": hidden_act_of(section), **checkpoint_facts(Path(ref.directory), ref.source)}


def hidden_act_of(config: Mapping[str, Any]) -> str:
    """The name of the activation between the feed-forward layers."""
    keys = ("hidden_act", "activation", "activation_function", "hidden_activation", "ff_activation")
    return next((str(config[key]) for key in keys if isinstance(config.get(key), str)), "gelu")
