"""Says from a config, file names and names of weights which family a model belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trimaran.core.errors import UsageError
from trimaran.core.families import FAMILIES, REFUSED, Family
from trimaran.export.checkpoint import weight_names

_ADAPTER = "adapter_config.json"
_MODULE_LINE = "trimaran deploy my_package.my_model:build --module"


def family_of(config: Mapping[str, Any], body: Path, source: str) -> str:
    """The model_type of config.json, corrected for Chinese checkpoints that state a wrong one.

    Raises UsageError for a family that is not supported and for a model with code of its own.
    """
    stated = str(config.get("model_type") or "")
    if stated in REFUSED:
        raise UsageError(f"{source} is a {stated}, which cannot be exported: {REFUSED[stated]}.")
    if config.get("auto_map"):
        _refuse_own_code(stated, source)
    if not stated:
        return _family_by_architecture(config, body, source)
    if stated in ("roberta", "xlm-roberta") and _has_bert_vocabulary(body):
        return _family_by_weights(body, source, stated)
    if stated not in FAMILIES:
        raise UsageError(
            f"{source} has model_type {stated!r}, which is no known encoder family.",
            hint=f"Known: {', '.join(sorted(FAMILIES))}. If it is one of these under another name, pass --family.",
        )
    return stated


def refuse_unsupported(row: Family, config: Mapping[str, Any], source: str) -> None:
    """Raises UsageError if the config asks for what the family's exporter cannot do."""
    for key, reason in row.unsupported.items():
        if config.get(key):
            raise UsageError(f"{source} has {key} in its config: {reason}.")


def refuse_adapters(folder: Path, body: Path, source: str) -> None:
    """Adapters (LoRA, such as those of jina-embeddings-v3 by task) would be left out silently."""
    paths = [
        path
        for directory in (folder, body)
        for path in (directory / _ADAPTER, *sorted(directory.glob(f"*/{_ADAPTER}")))
    ]
    adapter = next((path.parent for path in paths if path.is_file()), None)
    if adapter is not None:
        raise UsageError(
            f"{source} has an adapter in {adapter}, which is no part of the model's own weights.",
            hint="Merge the adapter of your task and deploy the result: "
            f"PeftModel.from_pretrained(MODEL, {str(adapter)!r}).merge_and_unload().save_pretrained(TARGET). "
            "For the model without adapters, copy its folder without them.",
        )


def _refuse_own_code(stated: str, source: str) -> None:
    """transformers would silently use its own code for a known model_type, which may compute something else."""
    by_transformers = f" If transformers' own {stated} computes the same, pass --family {stated}."
    raise UsageError(
        f"{source} needs code of its own (auto_map in its config), which is never run.",
        hint=f"Write a function that builds it from code you trust, and run `{_MODULE_LINE}`."
        + (by_transformers if stated in FAMILIES else ""),
    )


def _family_by_architecture(config: Mapping[str, Any], body: Path, source: str) -> str:
    """For ERNIE folders, which state no model_type: by the class name or by the names of the weights."""
    names = [str(name).lower() for name in config.get("architectures") or []]
    names += [name.split(".", 1)[0].lower() for name in weight_names(body) if "." in name]
    plain = {name.replace("-", "").replace("_", ""): name for name in FAMILIES}
    for name in names:
        fitting = [key for key in plain if name == key or name.startswith((f"{key}for", f"{key}model", f"{key}enc"))]
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
    """A "RoBERTa" with BERT's vocabulary (Chinese whole-word masking) is a BERT: it counts positions from 0."""
    prefixes = {name.split(".", 1)[0] for name in weight_names(body)}
    if "bert" in prefixes:
        return "bert"
    if "roberta" in prefixes:
        return stated
    raise UsageError(
        f"{source} says model_type {stated!r} but has BERT's vocabulary (vocab.txt), and its weights do not tell.",
        hint="Pass --family bert if it was trained as a BERT (Chinese RoBERTa-wwm was), else --family roberta.",
    )
