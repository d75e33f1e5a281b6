"""Static embeddings: a table with one vector a token, and the mean over a text. No layers, no attention.

They are folders of sentence-transformers with a StaticEmbedding module, or of model2vec, which has the same files.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from trimaran.core.errors import IntegrityError, UsageError
from trimaran.core.families import STATIC
from trimaran.core.spec import ModelRef
from trimaran.export.checkpoint import check_weights, load_pickle, weights_of

# Where sentence-transformers and model2vec store the table.
_TABLE, _MODEL2VEC_TABLE = "embedding.weight", "embeddings"
_MOST_TOKENS, _MOST_WIDTH = 10_000_000, 65_536


class TableSize(NamedTuple):
    tokens: int
    width: int


def table_size(body: Path, source: str) -> TableSize:
    """The tokens of the table and the length of a vector, without loading it."""
    shapes = _shapes(body, source)
    name = _TABLE if _TABLE in shapes else _MODEL2VEC_TABLE
    if len(shapes.get(name, ())) != 2:
        raise IntegrityError(f"The weights of {source} hold no table of vectors ({_TABLE} or {_MODEL2VEC_TABLE}).")
    rows, width = shapes[name]
    # A model2vec table may share rows between tokens; then another tensor has a row for each token.
    tokens = shapes.get("mapping", shapes.get("weights", (rows,)))[0] if name == _MODEL2VEC_TABLE else rows
    if not (0 < tokens <= _MOST_TOKENS and 0 < width <= _MOST_WIDTH):
        raise UsageError(f"The table of {source} has {tokens:,} tokens of {width:,} numbers, which is not supported.")
    return TableSize(tokens, width)


def tokenizer_limit(body: Path) -> int | None:
    """Tokens at which the tokenizer itself cuts a text. sentence-transformers sets no limit of its own."""
    truncation = _tokenizer_file(body).truncation
    return int(truncation["max_length"]) if truncation else None


def load_table(ref: ModelRef) -> Any:
    """The table as a module that gives token vectors as transformers' models do."""
    import torch

    check_weights(Path(ref.directory), ref.source)
    tensors = _tensors(Path(ref.directory), ref.source)
    if _TABLE in tensors:
        table = tensors[_TABLE].float()
    else:
        table = tensors[_MODEL2VEC_TABLE].float()
        if "mapping" in tensors:
            table = table[tensors["mapping"].long()]
        if "weights" in tensors:
            table = (table * tensors["weights"][:, None]).float()
    if not bool(torch.isfinite(table).all()):
        raise IntegrityError(f"The table of {ref.source} holds NaN or infinity.")

    class StaticTable(torch.nn.Module):
        config = SimpleNamespace(model_type=STATIC.name)

        def __init__(self) -> None:
            super().__init__()
            self.embedding = torch.nn.Embedding.from_pretrained(table.contiguous())

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
            return SimpleNamespace(last_hidden_state=self.embedding(input_ids))

    return StaticTable().eval()


def load_static_tokenizer(ref: ModelRef) -> Any:
    """The tokenizer, which adds no special tokens, with the attributes that `save_tokenizer` reads."""
    backend = _tokenizer_file(Path(ref.directory))
    truncation = backend.truncation or {}
    backend.post_processor = None
    return SimpleNamespace(
        backend_tokenizer=backend, pad_token_id=0, truncation_side=truncation.get("direction", "right")
    )


def _tokenizer_file(body: Path) -> Any:
    from tokenizers import Tokenizer

    path = body / "tokenizer.json"
    if not path.is_file():
        raise UsageError(f"{body} has no tokenizer.json.", hint="Copy the whole model folder.")
    return Tokenizer.from_file(str(path))


def _shapes(body: Path, source: str) -> dict[str, tuple[int, ...]]:
    weights = weights_of(body, source)
    if weights.suffix != ".safetensors":
        return {name: tuple(value.shape) for name, value in load_pickle(weights, device="meta").items()}
    check_weights(body, source)
    from safetensors import safe_open

    with safe_open(weights, framework="numpy") as opened:
        return {name: tuple(opened.get_slice(name).get_shape()) for name in opened.keys()}  # noqa: SIM118


def _tensors(body: Path, source: str) -> dict[str, Any]:
    weights = weights_of(body, source)
    if weights.suffix != ".safetensors":
        return load_pickle(weights)
    from safetensors.torch import load_file

    return dict(load_file(weights))
