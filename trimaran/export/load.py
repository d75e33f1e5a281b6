"""Loads a trained model and its tokenizer, as data only: no pickled code, no remote code, no fresh random head."""

from __future__ import annotations

import contextlib
import logging
import math
import re
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimaran.core.errors import IntegrityError, UnavailableError, UsageError, first_line
from trimaran.core.families import family
from trimaran.core.spec import ModelRef, TokenizerSpec
from trimaran.core.tasks import task
from trimaran.export.identify import safetensors_header
from trimaran.export.locate import weights_of
from trimaran.export.read_json import read_json

if TYPE_CHECKING:
    import torch

# A buffer that old checkpoints store and new ones do not.
_UNREAD = ("position_ids",)
# A pooler that the checkpoint lacks is no loss where the task reads token vectors.
_UNREAD_WITHOUT_HEAD = (*_UNREAD, "pooler.")
_LAYER_NUMBER = re.compile(r"\.(\d+)\.")
_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16", "F64": "float64"}


def load_model(ref: ModelRef, *, attention: str) -> torch.nn.Module:
    """The model in fp32 and eval mode. `attention` is transformers' implementation: `eager` or `sdpa`."""
    import torch
    import transformers

    body, row = Path(ref.directory), family(ref.family)
    check_weights(body, ref.source)
    wanted = task(ref.task).model_class
    model_class = getattr(transformers, row.classes.get(wanted, wanted))
    with quiet():
        config = load_config(ref)
        try:
            model, info = model_class.from_pretrained(
                body,
                config=config,
                attn_implementation=attention if row.sdpa else "eager",
                dtype=torch.float32,
                local_files_only=True,
                trust_remote_code=False,
                weights_only=True,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
            )
        except (OSError, RuntimeError, ValueError) as error:
            raise IntegrityError(f"The weights of {ref.source} cannot be loaded: {first_line(error)}") from error
    check_loaded(ref, info, layers=ref.layers)
    broken = [name for name, value in model.named_parameters() if not bool(torch.isfinite(value).all())]
    if broken:
        raise IntegrityError(f"The weights of {ref.source} hold NaN or infinity, first in {broken[0]}.")
    return model.eval()


def load_config(ref: ModelRef) -> Any:
    """transformers' config of the model, as the family that it really is, with the family's overrides."""
    import transformers

    body = Path(ref.directory)
    stated = read_json(body / "config.json", what=ref.source)
    if stated.get("model_type") == ref.family:
        config = transformers.AutoConfig.from_pretrained(body, local_files_only=True, trust_remote_code=False)
    else:
        facts = {key: value for key, value in stated.items() if key not in ("model_type", "auto_map")}
        config = transformers.AutoConfig.for_model(ref.family, **facts)
    for key, value in family(ref.family).overrides.items():
        setattr(config, key, value)
    return config


def check_loaded(ref: ModelRef, info: Mapping[str, Any], *, layers: int) -> None:
    """Refuses a checkpoint that does not fill the model, or that holds more of it than the config admits."""
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
    unread = _UNREAD_WITHOUT_HEAD if task(ref.task).bare else _UNREAD
    missing = sorted(name for name in info["missing_keys"] if not any(part in name for part in unread))
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
    found = [(name, _LAYER_NUMBER.search(name)) for name in sorted(unexpected) if "decoder" not in name]
    return [name for name, match in found if match and int(match.group(1)) >= layers]


def checkpoint_facts(ref: ModelRef) -> dict[str, Any]:
    """The types that the checkpoint stores its numbers in, and its size in fp32, from headers alone."""
    import torch

    body = Path(ref.directory)
    check_weights(body, ref.source)
    weights = weights_of(body, ref.source)
    files = [weights]
    if weights.suffix == ".json":
        files = sorted({body / name for name in read_json(weights, what="damaged")["weight_map"].values()})
    counts: dict[str, int] = {}
    for path in files:
        if path.suffix == ".safetensors":
            tensors = [
                (_DTYPES.get(entry["dtype"], entry["dtype"].lower()), math.prod(entry["shape"]))
                for entry in safetensors_header(path).values()
            ]
        else:
            # Checkpoints from before torch 1.6 are no zip files and cannot be mapped.
            state = torch.load(path, map_location="meta", weights_only=True, mmap=zipfile.is_zipfile(path))
            tensors = [
                (str(value.dtype).removeprefix("torch."), value.numel())
                for value in state.values()
                if isinstance(value, torch.Tensor)
            ]
        for dtype, count in tensors:
            counts[dtype] = counts.get(dtype, 0) + count
    floats = {name: count for name, count in counts.items() if "float" in name}
    stored = max(floats, key=lambda name: floats[name], default="float32")
    facts: dict[str, Any] = {"checkpoint_dtype": stored, "checkpoint_fp32_bytes": 4 * sum(floats.values())}
    if stored != "float32":
        facts["widened"] = f"the checkpoint is {stored}; the reference and the graph are its numbers in fp32"
    return facts


def check_weights(body: Path, source: str) -> None:
    """Refuses a truncated safetensors file, and a pickle that would run code, before anything loads them."""
    weights = weights_of(body, source)
    if weights.suffix == ".json":
        return
    if weights.suffix == ".safetensors":
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(weights, framework="numpy") as opened:
                opened.keys()
        except SafetensorError as error:
            raise IntegrityError(
                f"{weights} is damaged or cut short: {error}.", hint="Copy or download it again."
            ) from error
        return
    import pickle

    import torch

    try:
        torch.load(weights, map_location="meta", weights_only=True)
    except pickle.UnpicklingError as error:
        raise UsageError(
            f"{weights} is a pickle that wants to run code; it was not loaded.",
            hint="Convert it to safetensors where you trust it.",
        ) from error
    except (RuntimeError, EOFError) as error:
        raise IntegrityError(f"{weights} is damaged or cut short: {first_line(error)}") from error


def load_tokenizer(ref: ModelRef) -> Any:
    """transformers' fast tokenizer of the model."""
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
    return tokenizer


def save_tokenizer(tokenizer: Any, ref: ModelRef, folder: Path, *, vocabulary: int) -> TokenizerSpec:
    """Writes `tokenizer.json` and returns what the server needs beside it."""
    backend = tokenizer.backend_tokenizer
    highest = max(backend.get_vocab(with_added_tokens=True).values(), default=-1) + 1
    if highest > vocabulary:
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
        inputs=ref.inputs or row.inputs,
        prompts=ref.prompts,
        default_prompt=ref.default_prompt,
    )


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keeps transformers' progress bars and warnings off the user's terminal for a while."""
    from transformers.utils import logging as transformers_logging

    level = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    exporter = logging.getLogger("torch.onnx")
    exporter_level = exporter.level
    exporter.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        transformers_logging.set_verbosity(level)
        exporter.setLevel(exporter_level)
