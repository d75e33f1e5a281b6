"""Finds and checks the weight files of a model without loading them."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from trimaran.core.errors import IntegrityError, UsageError, first_line
from trimaran.export.read_json import path_inside, read_json

SAFETENSORS = ("model.safetensors", "model.safetensors.index.json")
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")
# safetensors' names of the types that checkpoints use.
_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16", "F64": "float64"}


def weights_of(body: Path, source: str) -> Path:
    """The file with the weights, or the index of several; safetensors before pickles."""
    for name in (*SAFETENSORS, *PICKLES):
        if (body / name).is_file():
            return body / name
    raise UsageError(
        f"{source} has no weights: none of {', '.join((*SAFETENSORS, *PICKLES))} is in {body}.",
        hint="Copy the whole model folder, weights included.",
    )


def weight_files(weights: Path) -> list[Path]:
    """The file itself, or the files that an index lists."""
    if weights.suffix != ".json":
        return [weights]
    names = read_json(weights, what="damaged").get("weight_map")
    if not isinstance(names, dict):
        raise IntegrityError(f"{weights} has no weight_map, which says where each tensor is.")
    files = sorted(
        {path_inside(weights.parent, name, stated_in=weights.name) for name in {str(name) for name in names.values()}}
    )
    if missing := [path for path in files if not path.is_file()]:
        raise UsageError(f"{missing[0]} is missing; {weights.name} lists it.")
    return files


def weight_names(body: Path) -> Sequence[str]:
    """Names of the tensors in a safetensors checkpoint; empty for other formats and for a damaged file."""
    from safetensors import SafetensorError, safe_open

    weights = next((body / name for name in SAFETENSORS if (body / name).is_file()), None)
    if weights is None:
        return ()
    names: list[str] = []
    for path in weight_files(weights):
        try:
            with safe_open(path, framework="numpy") as opened:
                names += opened.keys()
        except SafetensorError:
            return ()
    return sorted(names)


def check_weights(body: Path, source: str) -> None:
    """Refuses a truncated safetensors file, and a pickle that would run code, before anything loads them."""
    from safetensors import SafetensorError, safe_open

    for path in weight_files(weights_of(body, source)):
        if path.suffix != ".safetensors":
            load_pickle(path, device="meta")
            continue
        try:
            with safe_open(path, framework="numpy"):
                pass
        except SafetensorError as error:
            raise IntegrityError(
                f"{path} is damaged or cut short: {error}.", hint="Copy or download it again."
            ) from error


def load_pickle(path: Path, *, device: str = "cpu") -> dict[str, Any]:
    """The tensors of a pickled checkpoint. Nothing else in it is loaded, and no code is run."""
    import pickle

    import torch

    try:
        # Checkpoints from before torch 1.6 are no zip files and cannot be mapped into memory.
        return dict(torch.load(path, map_location=device, weights_only=True, mmap=zipfile.is_zipfile(path)))
    except pickle.UnpicklingError as error:
        raise UsageError(
            f"{path} is a pickle that wants to run code; it was not loaded.",
            hint="Convert it to safetensors where you trust it.",
        ) from error
    except (RuntimeError, EOFError) as error:
        raise IntegrityError(f"{path} is damaged or cut short: {first_line(error)}") from error


def checkpoint_facts(body: Path, source: str) -> dict[str, Any]:
    """For the manifest: the type in which most of the weights are stored, and their size in fp32."""
    check_weights(body, source)
    counts: dict[str, int] = {}
    for path in weight_files(weights_of(body, source)):
        for dtype, count in _tensors(path):
            if "float" in dtype:
                counts[dtype] = counts.get(dtype, 0) + count
    stored = max(counts, key=lambda name: counts[name], default="float32")
    facts: dict[str, Any] = {"checkpoint_dtype": stored, "checkpoint_fp32_bytes": 4 * sum(counts.values())}
    if stored != "float32":
        facts["widened"] = f"the checkpoint is {stored}; the reference and the graph are its numbers in fp32"
    return facts


def _tensors(path: Path) -> Iterator[tuple[str, int]]:
    """The type and the number of elements of each tensor."""
    import torch
    from safetensors import safe_open

    if path.suffix != ".safetensors":
        for value in load_pickle(path, device="meta").values():
            if isinstance(value, torch.Tensor):
                yield str(value.dtype).removeprefix("torch."), value.numel()
        return
    with safe_open(path, framework="numpy") as opened:
        for name in opened.keys():  # noqa: SIM118  (it is no mapping)
            tensor = opened.get_slice(name)
            yield _DTYPES.get(tensor.get_dtype(), tensor.get_dtype().lower()), math.prod(tensor.get_shape())
