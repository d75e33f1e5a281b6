"""The same model with fewer rows in its tables of tokens."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimaran.shrink.tokenizer_json import trimmed

if TYPE_CHECKING:
    import torch

_BATCH = 512
# Read by no library once `tokenizer.json` is there, and wrong after trimming.
_OF_THE_WHOLE_VOCABULARY = ("vocab.*", "merges.txt", "*.model", "added_tokens.json", "*.tiktoken", "unigram.json")
# A class that reads `tokenizer.json` as it is written.
_TOKENIZER_CLASS = "PreTrainedTokenizerFast"


def ids_of(tokenizer: Any, texts: Sequence[str]) -> Iterator[list[int]]:
    """The ids of each text, whole and without special tokens; `tokenizer` is transformers' fast one."""
    backend = copy.deepcopy(tokenizer.backend_tokenizer)
    backend.no_truncation()
    backend.no_padding()
    for begin in range(0, len(texts), _BATCH):
        for encoding in backend.encode_batch(list(texts[begin : begin + _BATCH]), add_special_tokens=False):
            yield encoding.ids


def coverage(ids: Sequence[Sequence[int]], always: Iterable[int]) -> float:
    """The share of the tokens of every tenth text that `always` stay or that the other texts use.

    It estimates how much of an unseen text would be read as before.
    """
    known = {*always, *(token for index, row in enumerate(ids) if index % 10 for token in row)}
    held_out = [token for row in ids[::10] for token in row]
    return sum(token in known for token in held_out) / max(1, len(held_out))


def with_rows(model: torch.nn.Module, kept: Sequence[int]) -> torch.nn.Module:
    """A copy of transformers' model that has only these rows of every table of tokens, in this order.

    A tensor belongs to the vocabulary if its shape changes with `vocab_size`.
    """
    import torch

    config: Any = copy.deepcopy(model.config)
    config.vocab_size = len(kept)
    for name, value in list(vars(config).items()):
        if name.endswith("_token_id"):
            setattr(config, name, _new_ids(value, {old: new for new, old in enumerate(kept)}))
    smaller: torch.nn.Module = type(model)(config).to(next(model.parameters()).dtype)
    shapes = {name: tensor.shape for name, tensor in smaller.state_dict().items()}
    rows = torch.tensor(list(kept))
    weights = {
        name: tensor if tensor.shape == shapes[name] else _of_rows(tensor, shapes[name], rows)
        for name, tensor in model.state_dict().items()
    }
    smaller.load_state_dict(weights)
    return smaller.eval()


def _of_rows(tensor: torch.Tensor, shape: torch.Size, rows: torch.Tensor) -> torch.Tensor:
    axis = next(axis for axis, (old, new) in enumerate(zip(tensor.shape, shape, strict=True)) if old != new)
    return tensor.index_select(axis, rows)


def _new_ids(value: Any, new_id: Mapping[int, int]) -> Any:
    """Ids that the smaller model no longer has become None."""
    if isinstance(value, list):
        return [new_id[item] for item in value if item in new_id]
    return new_id.get(value) if isinstance(value, int) else value


def write_tokenizer(tokenizer: Any, kept: Sequence[int], folder: Path) -> None:
    """transformers' fast tokenizer with these tokens only, as `tokenizer.json` and its settings."""
    tokenizer.save_pretrained(folder)
    whole = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    _write_json(folder / "tokenizer.json", trimmed(whole, kept))
    settings_file = folder / "tokenizer_config.json"
    settings = json.loads(settings_file.read_text(encoding="utf-8"))
    new_id = {old: new for new, old in enumerate(kept)}
    if "added_tokens_decoder" in settings:
        settings["added_tokens_decoder"] = {
            str(new_id[int(old)]): token for old, token in settings["added_tokens_decoder"].items()
        }
    settings |= {"tokenizer_class": _TOKENIZER_CLASS, "model_input_names": list(tokenizer.model_input_names)}
    _write_json(settings_file, settings)
    for pattern in _OF_THE_WHOLE_VOCABULARY:
        for path in folder.glob(pattern):
            path.unlink()


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
