"""Loads a trained model and its tokenizer as data: no pickled code, no remote code, no untrained head."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from trimaran.core.errors import IntegrityError, UnavailableError, UsageError, first_line
from trimaran.core.families import STATIC, family
from trimaran.core.spec import ModelRef, TokenizerSpec
from trimaran.core.tasks import task
from trimaran.export.chat import chat_of
from trimaran.export.checkpoint import check_weights
from trimaran.export.model_config import config_from_json
from trimaran.export.quiet import quiet
from trimaran.export.read_json import read_json
from trimaran.export.sentence import lower_cases
from trimaran.export.static import load_static_tokenizer, load_table

if TYPE_CHECKING:
    import torch

# Weights that a checkpoint may lack: a buffer that only old checkpoints store,
_OPTIONAL = ("position_ids",)
# and the pooler, if the task reads token vectors.
_OPTIONAL_WITHOUT_HEAD = (*_OPTIONAL, "pooler.")
_LAYER_NUMBER = re.compile(r"\.(\d+)\.")


def load_model(ref: ModelRef, *, attention: str, dtype: str = "float32") -> torch.nn.Module:
    """The model in eval mode. `attention` is transformers' implementation: `eager` or `sdpa`.

    `dtype` is the name of its type; `auto` is that of the checkpoint.
    """
    if ref.family == STATIC.name:
        return cast("torch.nn.Module", load_table(ref))
    import transformers

    body, row = Path(ref.directory), family(ref.family)
    check_weights(body, ref.source)
    head = "AutoModelForCausalLM" if ref.score_ids else task(ref.task).model_class
    model_class = getattr(transformers, row.classes.get(head, head))
    with quiet():
        config = load_config(ref)
        try:
            model, info = model_class.from_pretrained(
                body,
                config=config,
                attn_implementation=attention if row.sdpa else "eager",
                dtype=dtype,
                local_files_only=True,
                trust_remote_code=False,
                weights_only=True,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
            )
        except (OSError, RuntimeError, ValueError) as error:
            raise IntegrityError(f"The weights of {ref.source} cannot be loaded: {first_line(error)}") from error
    check_loaded(ref, info, layers=ref.layers)
    broken = [name for name, value in model.named_parameters() if not _is_finite(value)]
    if broken:
        raise IntegrityError(f"The weights of {ref.source} hold NaN or infinity, first in {broken[0]}.")
    return model.eval()


def _is_finite(weights: torch.Tensor) -> bool:
    """By the smallest and the largest number, which need no memory: a table of token vectors can have gigabytes."""
    return weights.numel() == 0 or all(math.isfinite(float(end)) for end in weights.detach().aminmax())


def load_config(ref: ModelRef) -> Any:
    """transformers' config of the model, with the family's overrides."""
    stated = read_json(Path(ref.directory) / "config.json", what=ref.source)
    config = config_from_json(stated, ref.family, ref.source)
    for key, value in family(ref.family).overrides.items():
        setattr(config, key, value)
    return config


def check_loaded(ref: ModelRef, info: Mapping[str, Any], *, layers: int) -> None:
    """Refuses a checkpoint that lacks weights of the model, or that holds more layers than the config says."""
    mismatched = sorted((tuple(entry) for entry in info["mismatched_keys"]), key=str)
    if mismatched:
        name, stored, built = (*mismatched[0], None, None)[:3]
        if ref.labels and built and stored and built[0] == len(ref.labels) != stored[0]:
            raise UsageError(
                f"The config of {ref.source} names {len(ref.labels)} labels, its head ({name}) has {stored[0]}.",
                hint="Put one name for each logit into id2label of config.json.",
            )
        raise UsageError(
            f"The config of {ref.source} does not describe its weights: {name} is {list(stored or ())} in the "
            f"checkpoint and {list(built or ())} by the config.",
            hint="Use the config.json that was saved with these weights.",
        )
    optional = _OPTIONAL_WITHOUT_HEAD if task(ref.task).bare else _OPTIONAL
    missing = sorted(name for name in info["missing_keys"] if not any(part in name for part in optional))
    surplus = _surplus_layers(info["unexpected_keys"], layers)
    if missing and _is_layer(missing[0]) and all(_is_layer(name) for name in missing):
        raise UsageError(
            f"The config of {ref.source} says {layers} layers, but the checkpoint lacks {len(missing)} weights of "
            f"them (such as {missing[0]}).",
            hint="Use the config.json that was saved with these weights.",
        )
    if missing:
        raise UsageError(
            f"The checkpoint of {ref.source} lacks {len(missing)} weights that {ref.task} needs "
            f"(such as {missing[0]}); they would be random numbers.",
            hint="Train the head first, or ask for a task that the checkpoint has.",
        )
    if surplus:
        raise UsageError(
            f"The config of {ref.source} says {layers} layers, but the checkpoint holds more (such as {surplus[0]}).",
            hint="Use the config.json that was saved with these weights.",
        )


def _is_layer(name: str) -> bool:
    return _LAYER_NUMBER.search(name) is not None


def _surplus_layers(unexpected: Sequence[str], layers: int) -> list[str]:
    names = [(name, _LAYER_NUMBER.search(name)) for name in sorted(unexpected) if "decoder" not in name]
    return [name for name, match in names if match and int(match.group(1)) >= layers]


def load_tokenizer(ref: ModelRef) -> Any:
    """transformers' fast tokenizer of the model."""
    if ref.family == STATIC.name:
        return load_static_tokenizer(ref)
    import transformers

    try:
        with quiet():
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                ref.directory, config=load_config(ref), local_files_only=True, trust_remote_code=False
            )
    except (OSError, ValueError, ImportError, TypeError) as error:
        raise UsageError(
            f"{ref.source} has no usable tokenizer: {first_line(error)}",
            hint="Save it beside the model: tokenizer.save_pretrained(folder).",
        ) from error
    if not getattr(tokenizer, "is_fast", False):
        raise UnavailableError(
            f"{ref.source} has only a slow tokenizer ({type(tokenizer).__name__}), which cannot be served.",
            hint="Put a tokenizer.json beside the model.",
        )
    if lower_cases(Path(ref.directory)):
        _lower_case(tokenizer.backend_tokenizer)
    if ref.multi_vector:
        _register_markers(tokenizer, ref.multi_vector.markers)
    return tokenizer


def _register_markers(tokenizer: Any, markers: Sequence[str]) -> None:
    """A marker that the vocabulary has is one token, as sentence-transformers makes it for PyLate's folders.

    A tokenizer would part `[unused0]` into pieces. A marker that is no token stays words.
    """
    from transformers import AddedToken

    known = {*tokenizer.get_vocab(), *tokenizer.added_tokens_encoder}
    whole = []
    for marker in filter(str.split, markers):
        token = next((form for form in (marker, marker.split(None, 1)[0]) if form in known), None)
        if token is not None and tokenizer.tokenize(token) != [token]:
            whole.append(AddedToken(token, normalized=False, special=True))
    if whole:
        tokenizer.add_special_tokens({"additional_special_tokens": whole})


def _lower_case(backend: Any) -> None:
    """Lower-cases before all else that the tokenizer normalises, as sentence-transformers does."""
    from tokenizers import normalizers

    own = [backend.normalizer] if backend.normalizer is not None else []
    backend.normalizer = normalizers.Sequence([normalizers.Lowercase(), *own])


def inputs_fed(ref: ModelRef, tokenizer: Any) -> tuple[str, ...]:
    """The model's inputs that its own library feeds: transformers 5 gives segment ids only to some families.

    `model_input_names` in tokenizer_config.json adds them, for the library and for us. A user's module names its own.
    """
    if ref.module:
        return ref.inputs
    return tuple(name for name in ref.inputs if name != "token_type_ids" or name in tokenizer.model_input_names)


def save_tokenizer(tokenizer: Any, ref: ModelRef, folder: Path, *, vocabulary: int) -> TokenizerSpec:
    """Writes `tokenizer.json` and returns what the server needs beyond it."""
    backend = tokenizer.backend_tokenizer
    ids = set(backend.get_vocab(with_added_tokens=True).values())
    highest = max(ids, default=-1) + 1
    beyond = sorted(token for token in ids if token >= vocabulary)
    # Markers that were added for another model of the same makers, such as one that also reads images.
    markers = {token for token, added in backend.get_added_tokens_decoder().items() if added.special}
    if not markers.issuperset(beyond):
        raise UsageError(
            f"The tokenizer of {ref.source} has {highest} tokens, the model only {vocabulary}: "
            "some texts would read past the embedding table.",
            hint="Use the tokenizer that the model was trained with.",
        )
    if 2 * highest < vocabulary:
        raise UsageError(
            f"The tokenizer of {ref.source} has {highest} tokens, the model {vocabulary}: they do not belong together.",
            hint="Use the tokenizer that the model was trained with.",
        )
    row = family(ref.family)
    pad_id = int(tokenizer.pad_token_id or 0)
    if row.reserved_positions:
        stated = read_json(Path(ref.directory) / "config.json", what=ref.source).get("pad_token_id")
        if stated is not None and stated != pad_id:
            raise UsageError(
                f"{ref.source} counts positions from padding id {stated}, but its tokenizer pads with {pad_id}.",
                hint="Use the tokenizer that the model was trained with, or correct pad_token_id in config.json.",
            )
    backend.no_padding()
    backend.no_truncation()
    backend.save(str(folder / "tokenizer.json"))
    return TokenizerSpec(
        pad_id=pad_id,
        pad_type_id=int(getattr(tokenizer, "pad_token_type_id", 0) or 0),
        pad_side=row.pad_side,
        cut_side=getattr(tokenizer, "truncation_side", "right"),
        inputs=ref.inputs,
        prompts=ref.prompts,
        default_prompt=ref.default_prompt,
        refused_ids=tuple(beyond),
        chat=chat_of(ref, tokenizer),
        sides=ref.multi_vector.sides if ref.multi_vector else None,
    )
