"""Reads a sentence-transformers folder: its modules in order, its pooling, its prompts and its text limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from trimaran.core.errors import IntegrityError, UsageError
from trimaran.core.families import UNBOUNDED
from trimaran.core.spec import Pooling, PoolingMode, Sparse
from trimaran.export.read_json import path_inside, read_json
from trimaran.export.routes import ROUTER, SEPARATOR, routes_of

_MODES: dict[str, PoolingMode] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean-sqrt-length",
    "pooling_mode_weightedmean_tokens": "weighted-mean",
    "pooling_mode_lasttoken": "last-token",
    "cls": "cls",
    "max": "max",
    "mean": "mean",
    "mean_sqrt_len_tokens": "mean-sqrt-length",
    "weightedmean": "weighted-mean",
    "lasttoken": "last-token",
}
# Our names of the modes -> those of sentence-transformers' Pooling.
MODES_BY_NAME: dict[PoolingMode, str] = {mode: name for name, mode in _MODES.items() if "pooling_mode" not in name}
# sentence-transformers reads the first of these that is there; early versions named it after the family.
_SENTENCE_CONFIGS = tuple(
    f"sentence_{family}_config.json"
    for family in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
_SETTINGS = "config_sentence_transformers.json"
_PROMPT_NAMES = ("query", "document")
STATIC_TABLE = "StaticEmbedding"
ENCODERS = ("Transformer", "MLMTransformer", STATIC_TABLE)
_KNOWN = {*ENCODERS, "Pooling", "SpladePooling", "Dense", "Normalize", "LogitScore", "MultiVectorMask"}
# Packages whose modules are known by their names. PyLate's folders list modules of both.
_LIBRARIES = ("sentence_transformers", "pylate")
CROSS_ENCODER = "CrossEncoder"
MULTI_VECTOR = "MultiVectorEncoder"
_WORDS = ("yes", "no")


class SentenceModule(NamedTuple):
    # The name of its class, such as Pooling.
    kind: str
    # Its folder inside the model's folder.
    path: str


def sentence_modules(folder: Path) -> tuple[SentenceModule, ...]:
    """The modules of a sentence-transformers model in order; empty for a plain one.

    A model2vec folder has those with which sentence-transformers reads it.
    """
    path = folder / "modules.json"
    if not path.is_file():
        return _model2vec_modules(folder)
    rows = read_json(path, what="modules.json is damaged", kind=list)
    if not all(isinstance(row, dict) and "type" in row for row in rows):
        raise IntegrityError(f"{path} lists modules without a type.")
    _refuse_own_modules(folder, [str(row["type"]) for row in rows])
    modules = tuple(SentenceModule(str(row["type"]).rsplit(".", 1)[-1], str(row.get("path", ""))) for row in rows)
    for module in modules:
        path_inside(folder, module.path, stated_in=path.name)
    _refuse_routes(folder, modules)
    unknown = sorted({module.kind for module in modules} - _KNOWN)
    if unknown:
        raise UsageError(f"{folder} has the sentence-transformers module {unknown[0]}, which is not supported.")
    return modules


def _refuse_own_modules(folder: Path, types: Sequence[str]) -> None:
    """A module of the folder's own code may compute something else than the library's module of the same name."""
    foreign = next((name for name in types if name.split(".", 1)[0] not in _LIBRARIES), None)
    if foreign is not None:
        raise UsageError(
            f"{folder} needs code of its own ({foreign} in modules.json), which is never run.",
            hint="If sentence-transformers' own module of that name computes the same, name it in modules.json of a "
            f"copy: sentence_transformers.models.{foreign.rsplit('.', 1)[-1]}. Otherwise deploy a function that builds "
            "the model from code you trust, with --module.",
        )


def _model2vec_modules(folder: Path) -> tuple[SentenceModule, ...]:
    config = read_json(folder / "config.json", what="damaged") if (folder / "config.json").is_file() else {}
    if config.get("model_type") != "model2vec":
        return ()
    normalize = (SentenceModule("Normalize", ""),) if config.get("normalize") else ()
    return (SentenceModule(STATIC_TABLE, ""), *normalize)


def head_modules(folder: Path, modules: tuple[SentenceModule, ...]) -> list[str]:
    """The kinds of the modules that say what the model is for: of a cross-encoder those behind its transformer."""
    kinds = [module.kind for module in modules]
    settings = model_settings(folder)
    if multi_vector_settings(settings, kinds):
        return [MULTI_VECTOR]
    if settings.get("model_type") != CROSS_ENCODER:
        return kinds
    behind = [kind for kind in kinds if kind not in ENCODERS]
    if set(behind) - {"LogitScore"}:
        raise UsageError(f"{folder} is a cross-encoder with the module {behind[0]}, which is not supported.")
    return behind


def multi_vector_settings(settings: Mapping[str, Any], kinds: Sequence[str]) -> bool:
    """Whether a folder is a late-interaction model: one of MultiVectorEncoder or of PyLate."""
    pylate = settings.get("model_type") == "ColBERT" or "query_prefix" in settings
    return bool(kinds) and (pylate or settings.get("model_type") == MULTI_VECTOR or "MultiVectorMask" in kinds)


def _refuse_routes(folder: Path, modules: Sequence[SentenceModule]) -> None:
    """A Router holds one network for queries and another for documents; an artifact is one network."""
    router = next((module for module in modules if module.kind == ROUTER), None)
    if router is None:
        return
    routes = routes_of(folder, router.path)
    each = " and ".join(f"-m '{folder}{SEPARATOR}{route}'" for route in routes)
    raise UsageError(
        f"{folder} routes {' and '.join(routes)} through networks of their own (Router), and one deployed model is one "
        "network.",
        hint=f"Deploy each route as a model of its own: {each}.",
    )


def encoder_folder(folder: Path, modules: tuple[SentenceModule, ...]) -> Path:
    return folder / next((module.path for module in modules if module.kind in ENCODERS), "")


def plain_mode(config: Mapping[str, Any]) -> PoolingMode:
    """How sentence-transformers pools a folder that has no modules of its own; `config` is its config.json."""
    architectures = config.get("architectures") or [""]
    causal = str(architectures[0]).endswith("ForCausalLM") and config.get("is_causal", True)
    return "last-token" if causal else "mean"


def pooling_of(folder: Path, modules: tuple[SentenceModule, ...], plain: PoolingMode) -> Pooling:
    """The folder's own pooling and what follows it. A model without modules is pooled by `plain` to unit length."""
    if not modules:
        return Pooling(mode=plain)
    kinds = [module.kind for module in modules]
    mode: PoolingMode = "mean"
    if "Pooling" in kinds:
        index = kinds.index("Pooling")
        mode = _mode_of(folder, read_json(folder / modules[index].path / "config.json", what="the pooling config"))
        modules = modules[index + 1 :]
    stages = tuple(
        "normalize" if module.kind == "Normalize" else module.path
        for module in modules
        if module.kind in ("Normalize", "Dense")
    )
    dimensions = model_settings(folder).get("truncate_dim")
    if dimensions is not None:
        # The library cuts vectors after all modules, so those that were of unit length are no longer.
        return Pooling(mode=mode, normalize=False, modules=stages, dimensions=dimensions)
    ends_normal = bool(stages) and stages[-1] == "normalize"
    return Pooling(mode=mode, normalize=ends_normal, modules=stages[:-1] if ends_normal else stages)


def sparse_of(folder: Path, modules: tuple[SentenceModule, ...]) -> Sparse:
    for module in modules:
        if module.kind == "SpladePooling":
            config = read_json(folder / module.path / "config.json", what="the pooling config")
            return Sparse.model_validate(
                {
                    "strategy": config.get("pooling_strategy", "max"),
                    "activation": config.get("activation_function", "relu"),
                    "most": model_settings(folder).get("max_active_dims"),
                }
            )
    return Sparse()


def width_of(root: Path, pooling: Pooling, hidden: int) -> int:
    """Length of the finished embedding."""
    width = hidden
    for stage in pooling.modules:
        if stage != "normalize":
            width = int(dense_config(root / stage)["out_features"])
    if pooling.whitening:
        from safetensors import safe_open

        with safe_open(pooling.whitening, framework="numpy") as opened:
            width = int(opened.get_slice("kernel").get_shape()[1])
    if pooling.dimensions is not None:
        if not 1 <= pooling.dimensions <= width:
            raise UsageError(f"An embedding of {width} numbers cannot be cut to {pooling.dimensions}.")
        width = pooling.dimensions
    return width


def dense_config(folder: Path, *, over: str = "sentence_embedding") -> dict[str, Any]:
    """The config of a Dense module. `over` names the vectors that it must take and give."""
    config: dict[str, Any] = read_json(folder / "config.json", what="a Dense module without its config")
    for key in ("module_input_name", "module_output_name"):
        if config.get(key) not in (None, over):
            raise UsageError(f"{folder} is a Dense module over {config[key]!r}; only {over} is supported here.")
    return config


def model_settings(folder: Path) -> dict[str, Any]:
    """What sentence-transformers says of the whole model: its kind, prompts and activation."""
    path = folder / _SETTINGS
    return read_json(path, what="damaged") if path.is_file() else {}


def with_cross_encoder(config: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """config.json, where it says of a cross-encoder what version 6 of sentence-transformers says elsewhere."""
    if settings.get("model_type") != CROSS_ENCODER:
        return dict(config)
    section = config.get("sentence_transformers")
    stated = {"activation_fn": settings["activation_fn"]} if settings.get("activation_fn") else {}
    return {**config, "sentence_transformers": {**(section if isinstance(section, dict) else {}), **stated}}


def score_ids_of(folder: Path, body: Path, modules: tuple[SentenceModule, ...]) -> tuple[int, ...]:
    """The tokens by which a generator scores a pair, as sentence-transformers' CrossEncoder has them."""
    scores = next((module for module in modules if module.kind == "LogitScore"), None)
    if scores is not None:
        config = read_json(folder / scores.path / "config.json", what="a LogitScore module without its config")
        stated = (config.get("true_token_id"), config.get("false_token_id"))
        return tuple(int(token) for token in stated if token is not None)
    from tokenizers import Tokenizer
    from tokenizers.models import BPE

    path = body / "tokenizer.json"
    vocabulary = Tokenizer.from_file(str(path)) if path.is_file() else Tokenizer(BPE())
    tokens = [token for word in _WORDS if (token := vocabulary.token_to_id(word)) is not None]
    if len(tokens) < len(_WORDS):
        raise UsageError(
            f"{folder} generates text, and its tokenizer has no tokens {' and '.join(_WORDS)} to score pairs by.",
            hint="Save it as a CrossEncoder of sentence-transformers, with a LogitScore module that names its tokens.",
        )
    return tuple(tokens)


def prompts_of(folder: Path, *, late: bool = False) -> tuple[dict[str, str], str]:
    """The prompts of a sentence-transformers folder by name, and the name of its default one, "" for none.

    `query` and `document` are always there but for a cross-encoder, empty if the folder does not state them. A folder
    whose prompts are all empty has none, but for a `late`-interaction model, whose prompts name the sides. There the
    markers of PyLate stand before the prompts.
    """
    config = model_settings(folder)
    prompts = {} if config.get("model_type") == CROSS_ENCODER else dict.fromkeys(_PROMPT_NAMES, "")
    prompts |= {str(name): str(words or "") for name, words in (config.get("prompts") or {}).items()}
    for name in _PROMPT_NAMES if late else ():
        marker = str(config.get(f"{name}_prefix") or "")
        prompts[name] = marker + prompts[name].removeprefix(marker)
    default = str(config.get("default_prompt_name") or "")
    if default and default not in prompts:
        raise UsageError(
            f"The default prompt {default!r} of {folder} is none of its prompts: {', '.join(prompts)}.",
            hint=f"Correct default_prompt_name or prompts in {_SETTINGS}.",
        )
    return (prompts, default) if late or any(prompts.values()) else ({}, "")


def text_limit(body: Path, positions: int) -> int | None:
    """Tokens at which the model's own library cuts a text; None if no file of the model says it.

    sentence-transformers reads its own config first, then the tokenizer's `model_max_length`, which version 6 writes
    instead. transformers reads only the tokenizer. A model never reads more tokens than it has positions.
    """
    stated = _sentence_limit(body) or _tokenizer_limit(body)
    limit = min(stated or positions, positions)
    return limit if limit < UNBOUNDED else None


def lower_cases(body: Path) -> bool:
    """Whether sentence-transformers lower-cases every text, whatever the tokenizer does by itself."""
    return bool(sentence_config(body).get("do_lower_case"))


def sentence_config(body: Path) -> dict[str, Any]:
    path = next((body / name for name in _SENTENCE_CONFIGS if (body / name).is_file()), None)
    return read_json(path, what="damaged") if path else {}


def _sentence_limit(body: Path) -> int | None:
    config = sentence_config(body)
    # The arguments of the tokenizer, under their present and their former name, come before `max_seq_length`.
    arguments = config.get("tokenizer_args") or config.get("processor_kwargs") or {}
    return _token_count(arguments.get("model_max_length", config.get("max_seq_length")))


def _tokenizer_limit(body: Path) -> int | None:
    path = body / "tokenizer_config.json"
    return _token_count(read_json(path, what="damaged").get("model_max_length")) if path.is_file() else None


def _token_count(value: Any) -> int | None:
    """The number, or None: a tokenizer without a limit states 1e30 or nothing."""
    return int(value) if isinstance(value, (int, float)) and 0 < value < UNBOUNDED else None


def _mode_of(folder: Path, config: dict[str, Any]) -> PoolingMode:
    stated = config.get("pooling_mode")
    active = [stated] if isinstance(stated, str) else list(stated or [])
    active = active or [key for key, value in config.items() if key.startswith("pooling_mode_") and value is True]
    if len(active) != 1 or active[0] not in _MODES:
        known = ", ".join(sorted(set(_MODES.values())))
        raise UsageError(f"{folder} pools by {' and '.join(active) or 'nothing'}; known, one at a time: {known}.")
    if config.get("include_prompt") is False:
        raise UsageError(f"{folder} leaves its prompt out of the pooling, which is not supported.")
    return _MODES[active[0]]
