"""Reads a late-interaction (ColBERT-style) folder of sentence-transformers or PyLate as MultiVectorEncoder reads it.

PyLate's folders differ in three ways. The markers `[Q] ` and `[D] ` stand apart from the prompts. The skip list is
punctuation unless the folder says otherwise. The last modules are not listed.
"""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trimaran.core.errors import UsageError
from trimaran.core.families import family
from trimaran.core.spec import MOST_EXPANDED, ModelRef, MultiVector, TextSide, TextSides
from trimaran.export.load import load_tokenizer
from trimaran.export.read_json import read_json
from trimaran.export.sentence import (
    ENCODERS,
    SentenceModule,
    dense_config,
    model_settings,
    multi_vector_settings,
    prompts_of,
    sentence_config,
)

_OVER = "token_embeddings"
_PREFIXES = {"query_prefix": "query", "document_prefix": "document"}
_SIMILARITIES = ("maxsim", "meanmaxsim")
_LENGTHS = ("query_length", "document_length")
_STATED = (*_LENGTHS, "query_expansion")
# PyLate fills queries up to so many tokens if its folder names no other number.
_EXPANDED = 32


def with_multi_vector(ref: ModelRef, modules: tuple[SentenceModule, ...]) -> ModelRef:
    """The model with what its folder says of late interaction; the same model if the folder is of another kind."""
    root = Path(ref.root)
    settings = model_settings(root)
    if not multi_vector_settings(settings, [module.kind for module in modules]):
        return ref
    legacy = any(name in settings for name in _PREFIXES) or settings.get("model_type") == "ColBERT"
    late = MultiVector(
        modules=_stages(root, modules, normalized=legacy),
        markers=tuple(dict.fromkeys(filter(None, (settings.get(name) for name in _PREFIXES)))),
        similarity=_similarity(settings, ref.source),
    )
    prompts, _ = prompts_of(root, late=True)
    ref = ref.model_copy(update={"multi_vector": late, "prompts": prompts, "default_prompt": "document"})
    tokenizer = load_tokenizer(ref)
    knobs = _knobs(settings, sentence_config(Path(ref.directory)), legacy=legacy)
    expansion = knobs.get("query_expansion")
    late = late.model_copy(
        update={
            "sides": _sides(ref, knobs, tokenizer),
            "attends": bool(expansion and expansion.get("attend")),
            "skipped_ids": _skipped(root, modules, settings, tokenizer, legacy=legacy),
        }
    )
    return ref.model_copy(
        update={
            "multi_vector": late,
            "width": _width(root, late.modules, ref.hidden),
            "default_sequence": _longest(late.sides, ref),
        }
    )


def _stages(root: Path, modules: Sequence[SentenceModule], *, normalized: bool) -> tuple[str, ...]:
    stages = []
    for module in modules:
        if module.kind == "Dense":
            dense_config(root / module.path, over=_OVER)
            stages.append(module.path)
        elif module.kind == "Normalize":
            path = root / module.path / "config.json"
            config = read_json(path, what="damaged") if path.is_file() else {}
            if config.get("module_input_name", _OVER) != _OVER:
                raise UsageError(f"{root / module.path} normalizes {config['module_input_name']!r}, not token vectors.")
            stages.append("normalize")
        elif module.kind not in (*ENCODERS, "MultiVectorMask", "Pooling"):
            raise UsageError(
                f"{root} is a late-interaction model with the module {module.kind}, which is not supported."
            )
    return (*stages, "normalize") if normalized and "normalize" not in stages[-1:] else tuple(stages)


def _similarity(settings: Mapping[str, Any], source: str) -> str:
    stated = settings.get("similarity_fn_name")
    if stated in _SIMILARITIES:
        return str(stated)
    # Folders that PyLate made of a model with one vector a text still name its function, which the library ignores.
    if stated not in (None, "cosine", "dot", "MaxSim"):
        raise UsageError(f"{source} compares token vectors by {stated}; known: {', '.join(_SIMILARITIES)}.")
    return "maxsim"


def _knobs(settings: Mapping[str, Any], stated: Mapping[str, Any], *, legacy: bool) -> dict[str, Any]:
    """Lengths and expansion: those of the transformer's own config come before PyLate's, as the library has it."""
    knobs = {name: settings[name] for name in _STATED if settings.get(name) is not None}
    if "query_expansion" in settings:
        knobs["query_expansion"] = settings["query_expansion"]
    elif legacy:
        knobs["query_expansion"] = None
        if settings.get("do_query_expansion") is not False:
            length = knobs.pop("query_length", None) or _EXPANDED
            attend = settings.get("attend_to_expansion_tokens", settings.get("attend_to_mask_tokens"))
            knobs["query_expansion"] = {"strategy": "fixed", "attend": bool(attend), "length": length}
    return knobs | {name: stated[name] for name in _STATED if name in stated}


def _sides(ref: ModelRef, knobs: Mapping[str, Any], tokenizer: Any) -> TextSides:
    lengths = {name: _length(ref, name, knobs[name]) for name in _LENGTHS if knobs.get(name) is not None}
    document, cut = TextSide(maximum=lengths.get("document_length")), lengths.get("query_length")
    expansion = knobs.get("query_expansion")
    if not expansion:
        return TextSides(query=TextSide(maximum=cut), document=document)
    width = _length(ref, "query_expansion", expansion.get("length") if isinstance(expansion, dict) else expansion)
    maximum = width if expansion["strategy"] == "fixed" else cut and max(cut, width)
    token = _expansion_id(ref, expansion.get("token"), tokenizer)
    if not expansion.get("attend"):
        _require_end(ref, token, tokenizer)
    return TextSides(query=TextSide(maximum=maximum, width=width), document=document, expansion_id=token)


def _length(ref: ModelRef, name: str, stated: Any) -> int:
    """Raises UsageError: queries are filled up to their length in memory."""
    if not isinstance(stated, int) or not 1 <= stated <= MOST_EXPANDED:
        raise UsageError(f"{ref.source} states {name} of {str(stated)[:40]}; 1 to {MOST_EXPANDED:,} are possible.")
    return stated


def _expansion_id(ref: ModelRef, stated: str | None, tokenizer: Any) -> int:
    """The stated token, else the mask, else the end of a text, as the library has it."""
    if "left" in (tokenizer.padding_side, family(ref.family).pad_side):
        raise UsageError(f"{ref.source} fills queries up on the left, which is not supported.")
    named = tokenizer.convert_tokens_to_ids(stated) if stated else None
    for token in (named,) if stated else (tokenizer.mask_token_id, tokenizer.eos_token_id):
        if token is not None and (token != tokenizer.unk_token_id or stated == tokenizer.unk_token):
            return int(token)
    raise UsageError(
        f"{ref.source} fills queries up with {stated or 'the mask'}, which its tokenizer does not have.",
        hint="Name a token of the vocabulary as query_expansion['token'] and save the model again.",
    )


def _require_end(ref: ModelRef, expansion_id: int, tokenizer: Any) -> None:
    """The graph finds the expansion behind the last other token. A text that ends with the same token must show."""
    last = tokenizer(tokenizer.convert_ids_to_tokens(expansion_id))["input_ids"][-1]
    if last == expansion_id:
        raise UsageError(
            f"{ref.source} fills queries up with tokens that others do not attend to, and its tokenizer puts no token "
            "behind a text, so the end of a query cannot be told.",
            hint="Set query_expansion['attend'] to True, or use a tokenizer that adds an end token.",
        )


def _skipped(
    root: Path, modules: Sequence[SentenceModule], settings: Mapping[str, Any], tokenizer: Any, *, legacy: bool
) -> dict[str, tuple[int, ...]]:
    mask = next((module for module in modules if module.kind == "MultiVectorMask"), None)
    config = read_json(root / mask.path / "config.json", what="a MultiVectorMask without its config") if mask else {}
    if config.get("keep_only_token_ids"):
        raise UsageError(
            f"{root} keeps the vectors of some tokens only, as models of images do. Texts are served here."
        )
    words = config.get("skiplist_words") if mask else settings.get("skiplist_words")
    if words is None and legacy and not mask:
        words = list(string.punctuation)
    ids = [(word, tokenizer.convert_tokens_to_ids(word)) for word in words or ()]
    unknown = tokenizer.unk_token_id
    known = {token for word, token in ids if token is not None and (token != unknown or word == tokenizer.unk_token)}
    tasks = config.get("skiplist_tasks") or ["document"]
    return {side: tuple(sorted(known)) for side in ([tasks] if isinstance(tasks, str) else tasks) if known}


def _width(root: Path, stages: Sequence[str], hidden: int) -> int:
    dense = [stage for stage in stages if stage != "normalize"]
    return int(dense_config(root / dense[-1], over=_OVER)["out_features"]) if dense else hidden


def _longest(sides: TextSides, ref: ModelRef) -> int | None:
    """Tokens of the longest text of either side, as the library cuts them."""
    lengths = [side.maximum or ref.default_sequence for side in (sides.query, sides.document)]
    stated = [length for length in lengths if length is not None]
    return min(max(stated), ref.positions) if len(stated) == len(lengths) else None
