"""A model that makes one vector a text, with the methods of sentence-transformers' `SentenceTransformer`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from trimaran.core.choices import Overflow
from trimaran.core.errors import UnavailableError, UsageError
from trimaran.core.small_vectors import RANGES, VectorPrecision, Vectors, small
from trimaran.core.whole_texts import pieces_by
from trimaran.pipeline.local import similarities
from trimaran.pipeline.local.model import WINDOW, LocalModel
from trimaran.pipeline.local.opening import Source
from trimaran.pipeline.local.similarities import Similarity
from trimaran.runtime.prompts import prompted
from trimaran.runtime.text import Text
from trimaran.serving.client import given

# The prompts that sentence-transformers takes for documents, the first that a model has.
_DOCUMENT_PROMPTS = ("document", "passage", "corpus")


class EmbeddingModel(LocalModel):
    """A drop-in for `SentenceTransformer` wherever texts are encoded.

    Examples:
        >>> model = trimaran.load("minilm")
        >>> vectors = model.encode(["one text", "another"])
        >>> model.similarity(vectors, vectors)
        tensor([[1.0000, 0.5512],
                [0.5512, 1.0000]])
    """

    def __init__(self, source: Source, *, threads: int | None = None) -> None:
        super().__init__(source, threads=threads)
        # The first numbers of a vector that `encode` keeps; None keeps all.
        self.truncate_dim: int | None = None
        self._similarity: Similarity = "cosine"

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "truncate_dim": self.truncate_dim, "similarity": self._similarity}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.truncate_dim, self._similarity = state["truncate_dim"], state["similarity"]

    def encode(
        self,
        inputs: str | Iterable[Text] | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
        output_value: str | None = "sentence_embedding",
        precision: VectorPrecision | None = "float32",
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        device: Any = None,
        normalize_embeddings: bool = False,
        truncate_dim: int | None = None,
        pool: Any = None,
        chunk_size: int | None = None,
        *,
        sentences: str | Iterable[Text] | None = None,
        show_progress: bool | None = None,
        overflow: Overflow = "cut",
    ) -> Any:
        """One vector a text: `[texts, width]` of float32, and one vector for a single string.

        `prompt_name` names a prompt of the model. `prompt` does too, and other words are put before each text as they
        are. `batch_size` and `chunk_size` change nothing: rows share calls as it was proven. Texts beyond
        `max_seq_length` are cut and counted in `truncated`. `precision` int8 and uint8 use the ranges that were
        calibrated at export, not those of the given texts. With `overflow="windows"` the vector of a text that is too
        long is the mean over pieces that are read whole (`"windows-max"`: the maximum). `sentences` is the older name
        of `inputs`, as in sentence-transformers.

        Examples:
            >>> model.encode(["one text", "another"], prompt="query", show_progress=True).shape
            (2, 384)
        """
        self._require_settings(device, batch_size, pool)
        if (inputs is None) == (sentences is None):
            raise UsageError("encode wants texts, as inputs (or by its older name, sentences).")
        if output_value != "sentence_embedding":
            raise UsageError(
                f"This model gives sentence embeddings, not {output_value}.",
                hint="For vectors of tokens, deploy it with --task feature-extraction.",
            )
        texts = sentences if inputs is None else inputs
        rows, alone = given.texts_or_pairs(list(texts) if isinstance(texts, tuple) else texts)
        show = bool(show_progress or show_progress_bar)
        if overflow == "cut":
            vectors = self._vectors(rows, prompt_name, prompt, show)
        else:
            whole = pieces_by(lambda texts: self._cut(texts, prompt_name, prompt), rows, overflow)
            pieces: list[Text] = [piece.text for piece in whole.read]
            vectors = self._vectors(pieces, prompt_name, prompt, show)
            vectors = whole.joined(vectors) if len(rows) else vectors
        ranges = self.manifest.details.get(RANGES, "")
        width = truncate_dim or self.truncate_dim
        if precision in ("int8", "uint8") and ranges and vectors.size:
            result: Any = small(vectors, dimensions=width, precision=precision, ranges=ranges)
        else:
            result = _quantized(_finished(vectors, width, normalize_embeddings), precision)
        if convert_to_tensor or not convert_to_numpy:
            import torch

            result = torch.from_numpy(result) if len(result) else torch.tensor([])
            result = result if convert_to_tensor else list(result)
        return result[0] if alone else result

    def encode_query(self, inputs: str | Iterable[Text] | None = None, **options: Any) -> Any:
        """`encode` with the model's `query` prompt, where it has one.

        Examples:
            >>> model.encode_query("What floats?").shape
            (384,)
        """
        return self.encode(inputs, **self._with_prompt(("query",), options))

    def encode_document(self, inputs: str | Iterable[Text] | None = None, **options: Any) -> Any:
        """`encode` with the model's `document`, `passage` or `corpus` prompt, where it has one.

        Examples:
            >>> model.encode_document(["A boat floats."]).shape
            (1, 384)
        """
        return self.encode(inputs, **self._with_prompt(_DOCUMENT_PROMPTS, options))

    def get_embedding_dimension(self) -> int:
        """Numbers of one vector."""
        width = next(spec for spec in self.manifest.signature.outputs if spec.name == "embedding").dims[-1]
        return min(int(width), self.truncate_dim or int(width))

    get_sentence_embedding_dimension = get_embedding_dimension

    def get_max_seq_length(self) -> int:
        return self.max_seq_length

    @property
    def default_prompt_name(self) -> str | None:
        return self.manifest.tokenizer.default_prompt or None

    @property
    def similarity_fn_name(self) -> Similarity:
        return self._similarity

    @similarity_fn_name.setter
    def similarity_fn_name(self, name: Any) -> None:
        self._similarity = similarities.named(str(getattr(name, "value", name) or "cosine"))

    @property
    def similarity(self) -> Callable[[Any, Any], Any]:
        """`similarity(first, second)`: every vector of the first with every one of the second, as a torch tensor.

        Examples:
            >>> model.similarity(model.encode(["a", "b"]), model.encode(["c"])).shape
            torch.Size([2, 1])
        """
        return similarities.ALL_PAIRS[self._similarity]

    @property
    def similarity_pairwise(self) -> Callable[[Any, Any], Any]:
        """`similarity_pairwise(first, second)`: each vector of the first with its neighbour of the second.

        Examples:
            >>> model.similarity_pairwise(model.encode(["a", "b"]), model.encode(["c", "d"])).shape
            torch.Size([2])
        """
        return similarities.PAIRWISE[self._similarity]

    @contextlib.contextmanager
    def truncate_embeddings(self, truncate_dim: int | None) -> Iterator[None]:
        """Within it, `encode` keeps the first numbers of each vector (Matryoshka)."""
        before, self.truncate_dim = self.truncate_dim, truncate_dim
        try:
            yield
        finally:
            self.truncate_dim = before

    def _cut(self, texts: Sequence[str], prompt_name: str | None, prompt: str | None) -> list[bool]:
        """Of each text, whether the model reads only a part of it."""
        prompted, name = self._asked(list(texts), prompt_name, prompt)
        with self._lock:
            encoder = self._opened().encoder
            with encoder.noting_truncated() as truncated:
                encoder.encodings(prompted, prompt=name)
        return list(truncated)

    def _asked(self, rows: list[Text], prompt_name: str | None, prompt: str | None) -> tuple[list[Text], str | None]:
        """The texts with the words of the prompt, and the name of one of the model's prompts."""
        name, words = prompt_name, ""
        if prompt is not None:
            known = prompt in self.prompts
            name, words = (prompt, "") if known else ("", prompt)
        return [prompted(row, words) for row in rows] if words else rows, name

    def _vectors(self, rows: list[Text], prompt_name: str | None, prompt: str | None, show: bool) -> Vectors:
        texts, name = self._asked(rows, prompt_name, prompt)
        windows = range(0, len(texts), WINDOW)
        answers: list[Any] = []
        with _progress(len(texts), show) as advance:
            for begin in windows:
                answers += self._dense(texts[begin : begin + WINDOW], name)
                advance(len(texts[begin : begin + WINDOW]))
        return np.stack(answers).astype(np.float32, copy=False) if answers else np.zeros(0, np.float32)

    def _dense(self, texts: list[Text], prompt: str | None) -> list[Any]:
        return self._answers(texts, prompt=prompt)

    def _with_prompt(self, names: tuple[str, ...], options: dict[str, Any]) -> dict[str, Any]:
        if options.get("prompt_name") is not None or options.get("prompt") is not None:
            return options
        return {**options, "prompt_name": next((name for name in names if name in self.prompts), None)}


def _finished(vectors: Vectors, width: int | None, unit: bool) -> Vectors:
    if not vectors.size:
        return vectors
    vectors = vectors[:, :width]
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12) if unit else vectors


def _quantized(vectors: Vectors, precision: VectorPrecision | None) -> Any:
    if precision in (None, "float32") or not vectors.size:
        return vectors
    try:
        from sentence_transformers.util import quantize_embeddings
    except ImportError as error:
        raise UnavailableError(
            f"precision={precision!r} needs sentence-transformers.", hint="pip install sentence-transformers"
        ) from error
    return quantize_embeddings(vectors, precision=precision)


@contextlib.contextmanager
def _progress(total: int, show: bool) -> Iterator[Callable[[int], Any]]:
    if not show:
        yield lambda count: None
        return
    from tqdm.auto import tqdm

    with tqdm(total=total, unit="text", desc="Texts") as bar:
        yield bar.update
