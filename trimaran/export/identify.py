"""Says from a config and file names what a model is: its family, its task, its sizes and its labels."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trimaran.core.errors import UsageError
from trimaran.core.families import FAMILIES, REFUSED, family
from trimaran.core.spec import Activation
from trimaran.core.tasks import TASKS, task

SIZE_KEYS = {
    "layers": ("num_hidden_layers", "n_layers", "n_layer", "num_layers"),
    "hidden": ("hidden_size", "dim", "emb_dim", "d_model", "n_embd"),
    "heads": ("num_attention_heads", "n_heads", "n_head", "num_heads"),
    "positions": ("max_position_embeddings", "n_positions"),
}
_ACTIVATIONS: dict[str, Activation] = {"Sigmoid": "sigmoid", "Identity": "none"}


def family_of(config: Mapping[str, Any], body: Path, source: str) -> str:
    """The model type of the config, corrected where Chinese checkpoints are known to misname it, or a refusal."""
    stated = str(config.get("model_type") or "")
    if stated in REFUSED:
        raise UsageError(f"{source} is a {stated}, which cannot be exported: {REFUSED[stated]}.")
    if not stated:
        return _family_by_architecture(config, body, source)
    if stated in ("roberta", "xlm-roberta") and _has_bert_vocabulary(body):
        return _family_by_weights(body, source, stated)
    if stated not in FAMILIES:
        if config.get("auto_map"):
            raise UsageError(
                f"{source} needs code of its own (auto_map in its config), which is never run.",
                hint="Use --module with a function of yours that builds it from code you trust.",
            )
        raise UsageError(
            f"{source} has model_type {stated!r}, which is no known encoder family.",
            hint=f"Known: {', '.join(sorted(FAMILIES))}. If it is one of these under another name, pass --family.",
        )
    for key, reason in family(stated).unsupported.items():
        if config.get(key):
            raise UsageError(f"{source} has {key} in its config: {reason}.")
    return stated


def _family_by_architecture(config: Mapping[str, Any], body: Path, source: str) -> str:
    """ERNIE folders come without a model_type; the class name or the names of the weights still tell."""
    names = [str(name).lower() for name in config.get("architectures") or []]
    names += [name.split(".", 1)[0].lower() for name in weight_names(body) if "." in name]
    plain = {name.replace("-", "").replace("_", ""): name for name in FAMILIES}
    for found in names:
        fitting = [key for key in plain if found == key or found.startswith((f"{key}for", f"{key}model", f"{key}enc"))]
        if fitting:
            return plain[max(fitting, key=len)]
    raise UsageError(
        f"The config of {source} states no model_type, and neither its architecture nor its weights tell the family.",
        hint="Pass --family, such as --family ernie or --family bert.",
    )


def _has_bert_vocabulary(body: Path) -> bool:
    others = ("vocab.json", "merges.txt", "sentencepiece.bpe.model", "tokenizer.json")
    return (body / "vocab.txt").is_file() and not any((body / name).is_file() for name in others)


def _family_by_weights(body: Path, source: str, stated: str) -> str:
    """A whole-word-masking "RoBERTa" with BERT's vocabulary is a BERT: it counts positions from 0."""
    prefixes = {name.split(".", 1)[0] for name in weight_names(body)}
    if "bert" in prefixes:
        return "bert"
    if "roberta" in prefixes:
        return stated
    raise UsageError(
        f"{source} says model_type {stated!r} but has BERT's vocabulary (vocab.txt), and its weights do not tell.",
        hint="Pass --family bert if it was trained as a BERT (Chinese RoBERTa-wwm was), else --family roberta.",
    )


def weight_names(body: Path) -> Sequence[str]:
    """Names of the tensors in a safetensors checkpoint, from its header alone; empty for other formats."""
    index = body / "model.safetensors.index.json"
    if index.is_file():
        return sorted(json.loads(index.read_text(encoding="utf-8")).get("weight_map", {}))
    path = body / "model.safetensors"
    return sorted(safetensors_header(path)) if path.is_file() else ()


def safetensors_header(path: Path) -> dict[str, Any]:
    """Tensor name -> dtype and shape. A header that cannot be read is empty here; `load` refuses the file later."""
    try:
        with path.open("rb") as stream:
            (size,) = struct.unpack("<Q", stream.read(8))
            header: dict[str, Any] = json.loads(stream.read(min(size, path.stat().st_size)))
    except (ValueError, struct.error):
        return {}
    header.pop("__metadata__", None)
    return header


def size_of(config: Mapping[str, Any], what: str) -> int:
    return next((int(config[key]) for key in SIZE_KEYS[what] if config.get(key)), 0)


def positions_of(config: Mapping[str, Any], model_type: str) -> int:
    row = family(model_type)
    if row.longest:
        return row.longest(config)
    return (size_of(config, "positions") or 512) - row.reserved_positions


def inputs_of(config: Mapping[str, Any], model_type: str) -> tuple[str, ...]:
    """The family's inputs, without segment ids where the model has no table for them."""
    segments = int(config.get("type_vocab_size", 2 if model_type not in ("deberta", "deberta-v2") else 0))
    return tuple(name for name in family(model_type).inputs if name != "token_type_ids" or segments > 1)


def task_of(asked: str, config: Mapping[str, Any], *, modules: Sequence[str], model_type: str, source: str) -> str:
    """The task asked for, when the model can do it, or with `auto` the only one its architecture can mean."""
    architectures = [str(name) for name in config.get("architectures") or []]
    fitting = [row.name for row in TASKS.values() if any(name.endswith(row.architectures) for name in architectures)]
    if asked != "auto":
        return _asked_task(asked, fitting, architectures, model_type=model_type, source=source)
    if "SpladePooling" in modules:
        return "sparse-embedding"
    if modules:
        return "embedding"
    stated = ", ".join(architectures) or "not stated"
    likely = [name for name in fitting if task(name).automatic]
    if "text-classification" in likely and len(labels_of(config)) == 1 and config.get("problem_type") != "regression":
        likely = ["rerank"] if _cross_encoder_activation(config) is not None else ["text-classification", "rerank"]
    if len(likely) != 1:
        choice = f"could mean {' or '.join(likely)}" if likely else "tells no task"
        raise UsageError(
            f"The task of {source} cannot be told from its architecture ({stated}): it {choice}.",
            hint=f"Pass --task with one of {', '.join(likely or TASKS)}.",
        )
    return likely[0]


def _asked_task(
    asked: str, fitting: Sequence[str], architectures: Sequence[str], *, model_type: str, source: str
) -> str:
    row = task(asked)
    if asked in family(model_type).lacks:
        raise UsageError(f"The family {model_type} has no head for {asked}.")
    if not row.bare and row.name not in fitting:
        raise UsageError(
            f"{source} has no head for {asked}: its architecture is {', '.join(architectures) or 'not stated'}.",
            hint="Train a head first, or ask for --task embedding.",
        )
    return row.name


def labels_of(config: Mapping[str, Any]) -> tuple[str, ...]:
    labels = config.get("id2label")
    if not isinstance(labels, dict) or not labels:
        return tuple(f"LABEL_{index}" for index in range(int(config.get("num_labels", 2))))
    return tuple(str(labels[key]) for key in sorted(labels, key=int))


def activation_of(config: Mapping[str, Any], task_name: str, source: str) -> Activation:
    """What turns logits into scores, by the rules of transformers' pipelines and sentence-transformers."""
    if task_name == "rerank":
        stated = _cross_encoder_activation(config)
        if stated and stated not in _ACTIVATIONS:
            raise UsageError(
                f"{source} scores through {stated}, which is not supported.", hint="Known: Sigmoid, Identity."
            )
        return _ACTIVATIONS[stated or "Sigmoid"]
    if task_name != "text-classification":
        return "softmax"
    if config.get("problem_type") == "regression":
        return "none"
    return (
        "sigmoid"
        if config.get("problem_type") == "multi_label_classification" or len(labels_of(config)) == 1
        else "softmax"
    )


def _cross_encoder_activation(config: Mapping[str, Any]) -> str | None:
    """The class name of a CrossEncoder's activation, "" when it states none, None for any other model."""
    section = config.get("sentence_transformers")
    if isinstance(section, dict):
        return str(section.get("activation_fn", "")).rsplit(".", 1)[-1]
    legacy = config.get("sbert_ce_default_activation_function")
    return None if legacy is None else str(legacy).rsplit(".", 1)[-1]
