"""Takes a user's own PyTorch module as a model: a function returns it with its tokenizer and example inputs."""

from __future__ import annotations

import hashlib
import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from trimaran.core.errors import IntegrityError, UsageError
from trimaran.core.families import MODULE, UNBOUNDED
from trimaran.core.spec import ModelRef, Pooling
from trimaran.export.pooling import Pooled

_INPUTS = ("input_ids", "attention_mask", "token_type_ids")


class UserModel(NamedTuple):
    module: torch.nn.Module
    tokenizer: Any
    inputs: Mapping[str, torch.Tensor]


class PooledUserModule(torch.nn.Module):
    """The user's module. If the task is embedding and it gives token vectors, they are pooled."""

    def __init__(self, module: torch.nn.Module, ref: ModelRef) -> None:
        super().__init__()
        self.module = module
        self._names = ref.inputs
        self.pooled = Pooled(ref) if ref.task == "embedding" else None

    def forward(self, *arrays: torch.Tensor) -> Any:
        named = dict(zip(self._names, arrays, strict=True))
        output = self.module(**named)
        return self.pooled(output, named["attention_mask"]) if self.pooled is not None and output.ndim == 3 else output


def locate_module(factory: str, *, task_name: str = "embedding", pooling: Pooling | None = None) -> ModelRef:
    """The model that `factory` (`package.module:function`) builds. This runs the user's code."""
    model = build(factory)
    names = tuple(name for name in _INPUTS if name in model.inputs)
    unknown = sorted(set(model.inputs) - set(_INPUTS))
    if unknown or names[:2] != _INPUTS[:2]:
        raise UsageError(
            f"{factory} takes {', '.join(model.inputs)}; wanted are input_ids and attention_mask, and token_type_ids "
            "where the model has segments.",
            hint="Turn tokens into characters inside the module: a table of them is a buffer.",
        )
    with torch.inference_mode():
        output = model.module(**{name: model.inputs[name] for name in names})
    first = output if isinstance(output, torch.Tensor) else next(iter(output))
    pooled = (pooling or Pooling()) if task_name == "embedding" else None
    size = int(first.shape[-1])
    width = (pooled.dimensions or size) if pooled else size
    labels = size if task_name in ("text-classification", "token-classification") else 0
    return ModelRef(
        source=factory,
        directory="",
        digest=digest_of_module(factory, model.module),
        family=MODULE.name,
        task=task_name,
        name=factory.rpartition(":")[2].replace("_", "-").strip("-") or "module",
        positions=UNBOUNDED,
        layers=0,
        hidden=size,
        heads=0,
        pooling=pooled,
        labels=tuple(f"LABEL_{index}" for index in range(labels)),
        inputs=names,
        vocabulary=max(_backend(model.tokenizer).get_vocab(with_added_tokens=True).values()) + 1,
        width=width,
        module=factory,
    )


def complete_user_module(ref: ModelRef) -> torch.nn.Module:
    model = _built(ref)
    # The files of a folder are compared where those of all folders are.
    if not ref.directory and digest_of_module(str(ref.module), model.module) != ref.digest:
        raise IntegrityError(
            f"{ref.module} built another model than before.",
            hint="The function must load trained weights, or fix its seed, so that it builds the same each time.",
        )
    return PooledUserModule(model.module, ref).eval()


def user_tokenizer(ref: ModelRef) -> Any:
    return UserTokenizer(_built(ref).tokenizer)


def _built(ref: ModelRef) -> UserModel:
    assert ref.module is not None
    return build(ref.module, *([Path(ref.directory)] if ref.directory else []))


def build(factory: str, *arguments: Path) -> UserModel:
    """Imports and calls the user's function. Modules in the current folder are found too, after installed ones.

    A function of ours that reads a folder is called with it.
    """
    package, _, name = factory.partition(":")
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    try:
        function = getattr(importlib.import_module(package), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(
            f"There is no function {factory}: {error}.",
            hint="Name a function that can be imported from here, such as "
            "`trimaran deploy my_package.my_model:build --module`.",
        ) from error
    parts = function(*arguments)
    if not (isinstance(parts, tuple) and len(parts) == 3 and isinstance(parts[0], torch.nn.Module)):
        raise UsageError(f"{factory} must return a module, its tokenizer and a mapping of example inputs.")
    model = UserModel(*parts)
    model.module.eval()
    return model


def digest_of_module(factory: str, module: torch.nn.Module) -> str:
    total = hashlib.sha256(factory.encode())
    for name, value in module.state_dict().items():
        total.update(name.encode() + str(value.dtype).encode() + value.cpu().contiguous().numpy().tobytes())
    return total.hexdigest()


class UserTokenizer:
    """Gives a user's tokenizer the attributes of transformers' that `save_tokenizer` reads.

    It may be a path, a `tokenizers.Tokenizer` or a fast tokenizer of transformers.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.backend_tokenizer = _backend(tokenizer)
        self.pad_token_id = getattr(tokenizer, "pad_token_id", None) or _pad_id(self.backend_tokenizer)
        self.mask_token_id = getattr(tokenizer, "mask_token_id", None)
        self.truncation_side = getattr(tokenizer, "truncation_side", "right")


def _backend(tokenizer: Any) -> Any:
    from tokenizers import Tokenizer

    if isinstance(tokenizer, (str, Path)):
        return Tokenizer.from_file(str(tokenizer))
    return getattr(tokenizer, "backend_tokenizer", tokenizer)


def _pad_id(tokenizer: Any) -> int | None:
    ids = (tokenizer.token_to_id(token) for token in ("[PAD]", "<pad>"))
    return next((index for index in ids if index is not None), None)
