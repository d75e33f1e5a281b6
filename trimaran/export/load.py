"""Loads a trained model and its tokenizer, as data only: no pickled code, no remote code, no fresh random head."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimaran.errors import IntegrityError, UnavailableError, UsageError
from trimaran.export.locate import weights_of
from trimaran.families import family
from trimaran.spec import ModelRef, TokenizerSpec
from trimaran.tasks import task

if TYPE_CHECKING:
    import torch

# Weights that a checkpoint may lack, because no task of ours reads what they compute.
_UNREAD = ("pooler.", "position_ids")


def load_model(ref: ModelRef, *, attention: str) -> torch.nn.Module:
    """The model in fp32 and eval mode. `attention` is transformers' implementation: `eager` or `sdpa`."""
    import torch
    import transformers

    body = Path(ref.directory)
    check_weights(body, ref.source)
    model_class = getattr(transformers, task(ref.task).model_class)
    with quiet():
        config = transformers.AutoConfig.from_pretrained(body, local_files_only=True, trust_remote_code=False)
        if config.model_type != ref.family:
            config = transformers.AutoConfig.for_model(ref.family, **config.to_diff_dict())
        try:
            model, info = model_class.from_pretrained(
                body,
                config=config,
                attn_implementation=attention,
                dtype=torch.float32,
                local_files_only=True,
                trust_remote_code=False,
                weights_only=True,
                output_loading_info=True,
            )
        except (OSError, RuntimeError, ValueError) as error:
            raise IntegrityError(f"The weights of {ref.source} cannot be loaded: {_first_line(error)}") from error
    missing = sorted(name for name in info["missing_keys"] if not any(part in name for part in _UNREAD))
    if missing or info["mismatched_keys"]:
        what = missing or sorted(str(name) for name in info["mismatched_keys"])
        raise UsageError(
            f"The checkpoint of {ref.source} lacks {len(what)} weights that {ref.task} needs (such as {what[0]}); "
            "they would be random numbers.",
            hint="Train the head first, or ask for a task that the checkpoint has.",
        )
    broken = [name for name, value in model.named_parameters() if not bool(torch.isfinite(value).all())]
    if broken:
        raise IntegrityError(f"The weights of {ref.source} hold NaN or infinity, first in {broken[0]}.")
    return model.eval()


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
        raise IntegrityError(f"{weights} is damaged or cut short: {_first_line(error)}") from error


def load_tokenizer(ref: ModelRef) -> Any:
    """transformers' fast tokenizer of the model."""
    import transformers

    try:
        with quiet():
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                ref.directory, local_files_only=True, trust_remote_code=False
            )
    except (OSError, ValueError, ImportError) as error:
        raise UsageError(
            f"{ref.source} has no usable tokenizer: {_first_line(error)}",
            hint="Save it beside the model: tokenizer.save_pretrained(folder).",
        ) from error
    if not getattr(tokenizer, "is_fast", False):
        raise UnavailableError(f"{ref.source} has only a slow tokenizer, which cannot be served.")
    return tokenizer


def save_tokenizer(tokenizer: Any, ref: ModelRef, folder: Path, *, vocabulary: int) -> TokenizerSpec:
    """Writes `tokenizer.json` and returns what the server needs beside it."""
    if len(tokenizer) > vocabulary:
        raise UsageError(
            f"The tokenizer of {ref.source} has {len(tokenizer)} tokens, the model only {vocabulary}: "
            "some texts would read past the embedding table.",
            hint="Use the tokenizer that the model was trained with.",
        )
    tokenizer.backend_tokenizer.save(str(folder / "tokenizer.json"))
    row = family(ref.family)
    return TokenizerSpec(
        pad_id=int(tokenizer.pad_token_id or 0),
        pad_type_id=int(getattr(tokenizer, "pad_token_type_id", 0) or 0),
        pad_side=row.pad_side,
        inputs=row.inputs,
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


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
