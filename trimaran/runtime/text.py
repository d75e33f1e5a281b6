"""Text in, answers out, around any engine: tokenise, run rows without padding waste, put rows back in order."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .chat import Chat
from .cutting import TextCutter, encoded_batch, shortened
from .prompts import prompt_words, prompted
from .sides import Sides

Array = npt.NDArray[Any]
Infer = Callable[[Mapping[str, Array]], Mapping[str, Array]]
InferMany = Callable[[Sequence[Mapping[str, Array]]], Sequence[Mapping[str, Array]]]
Text = str | tuple[str, str]

# On a CPU a padded token costs as much as a real one, and a call little.
STRETCH = 1.125
# `rounded` rows have a multiple of these many tokens. Finer steps leave more calls of few rows, and an engine has to
# prepare itself for more shapes; coarser ones pad more.
STEP = 8
# `packed` rows stand in a multiple of these many places, as many as a CPU adds up at once, and the engine computes
# little but the tokens. Attention still sees all places: the longest has at most so many times those of the shortest.
PACKED_STEP, PACKED_STRETCH = 16, 2.0
_STEPS = {"rounded": STEP, "packed": PACKED_STEP}

# Attention computes a score for every pair of tokens of a text: a call has at most so many pairs, or a single text.
# These are 64 texts of 512 tokens, four of 2,048, or one of 4,096 and more.
MOST_PAIRS = 64 * 512 * 512

# Which axes of an output run along the tokens; outputs that are not named here have none.
SEQUENCE_AXES: dict[str, tuple[int, ...]] = {
    "token_embeddings": (1,),
    "token_weights": (1,),
    "token_logits": (1,),
    "token_scores": (1,),
    "token_ids": (1,),
    "start_logits": (1,),
    "end_logits": (1,),
    "hidden_states": (2,),
    "attentions": (3, 4),
}


class Row(NamedTuple):
    """One tokenised text, unpadded."""

    ids: Sequence[int]
    type_ids: Sequence[int]


class RowNotes(NamedTuple):
    """What is noted of each row that is encoded."""

    # Whether a text of it was cut.
    truncated: list[bool]
    # Its tokens, special ones included.
    tokens: list[int]


class TextEncoder:
    """Tokenises with Hugging Face `tokenizers` and builds the engine's inputs."""

    def __init__(
        self,
        tokenizer_file: str,
        *,
        inputs: Sequence[str],
        minimum: int,
        maximum: int,
        pad_id: int,
        pad_type_id: int = 0,
        pad_side: str = "right",
        cut_side: str = "right",
        prompts: Mapping[str, str] | None = None,
        default_prompt: str = "",
        refused_ids: Sequence[int] = (),
        chat: Mapping[str, Any] | None = None,
        sides: Mapping[str, Any] | None = None,
    ) -> None:
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_file(tokenizer_file)
        self._tokenizer.no_padding()
        self._cut_side = cut_side
        self._tokenizer.enable_truncation(max_length=maximum, direction=cut_side)
        self._cutter = TextCutter(self._tokenizer)
        self._inputs = tuple(inputs)
        self._minimum, self._maximum = minimum, maximum
        self._pad_id, self._pad_type_id, self._pad_left = pad_id, pad_type_id, pad_side == "left"
        self._prompts, self._default_prompt = dict(prompts or {}), default_prompt
        self._refused = frozenset(refused_ids)
        self._chat = Chat(**chat, tokenizer=self._tokenizer) if chat else None
        self.sides = Sides(**sides) if sides else None
        self._notes: RowNotes | None = None

    @contextlib.contextmanager
    def noting_rows(self) -> Iterator[RowNotes]:
        """While the block runs, the lists get an entry for each row that is encoded."""
        self._notes = RowNotes([], [])
        try:
            yield self._notes
        finally:
            self._notes = None

    @contextlib.contextmanager
    def noting_truncated(self) -> Iterator[list[bool]]:
        with self.noting_rows() as notes:
            yield notes.truncated

    def _checked(self, encodings: list[Any], *, whole: bool = False, maximum: int | None = None) -> list[Any]:
        """The same encodings. With `whole`, they are one text in several windows, of which nothing is lost.

        Raises ValueError for a token that the model does not have.
        """
        refused = self._refused and self._refused.intersection(token for row in encodings for token in row.ids)
        if refused:
            name = self._tokenizer.id_to_token(min(refused))
            raise ValueError(f"The text has the token {name}, for which the model has no vector. Leave it out.")
        if self._notes is not None and whole:
            self._notes.truncated.append(False)
            self._notes.tokens.append(sum(map(len, encodings)))
        elif self._notes is not None:
            lengths = [len(row) for row in encodings]
            # An encoding has its overflow as further encodings, which are slow to ask for.
            limit = maximum or self._maximum
            cut = (size >= limit and bool(row.overflowing) for size, row in zip(lengths, encodings, strict=True))
            self._notes.truncated.extend(cut)
            self._notes.tokens.extend(lengths)
        return encodings

    def rows(self, texts: Sequence[Text], *, prompt: str | None = None) -> list[Row]:
        return [Row(encoding.ids, encoding.type_ids) for encoding in self.encodings(texts, prompt=prompt)]

    def encodings(
        self,
        texts: Sequence[Text],
        *,
        prompt: str | None = None,
        instruction: str | None = None,
        always_pairs: bool = False,
    ) -> list[Any]:
        """The tokenizer's own encodings: ids, tokens, character offsets, special tokens, words, sequence ids.

        The words of the prompt stand before every text: of the named one, else of the model's default, which most
        models do not have. An `instruction` takes their place. A chat template has a place of its own for both. A pair
        with an empty second text is a single text, as transformers' pipelines read it, but with `always_pairs`, as a
        list of pairs is read. A late-interaction model reads a pair as a text and the name of its prompt. Raises
        ValueError for a prompt that the model does not have.
        """
        if prompt is not None and instruction is not None:
            raise ValueError("A prompt and an instruction are both given. Give one of them.")
        if self.sides:
            return self.sides.encodings(texts, prompt, self._maximum, self._encoded_at)
        words = prompt_words(self._prompts, self._default_prompt, prompt) if instruction is None else instruction
        single = not always_pairs
        rows = [text[0] if single and isinstance(text, tuple) and not text[1] else text for text in texts]
        if self._chat:
            return self._in_chat(self._chat, rows, words)
        return self._checked(self._encoded([prompted(text, words) for text in rows] if words else rows))

    def in_template(self, texts: Sequence[str], before: str, after: str) -> list[Any]:
        """Encodings of the texts between two strings. Of a too long text the end is cut, never the template."""
        encodings = self.encodings([before + text + after for text in texts])
        cut = [len(encoding) >= self._maximum and bool(encoding.overflowing) for encoding in encodings]
        return [
            shortened(self._encoded, text, before, after, self._maximum) if is_cut else encoding
            for text, encoding, is_cut in zip(texts, encodings, cut, strict=True)
        ]

    def _in_chat(self, chat: Chat, texts: Sequence[Text], words: str) -> list[Any]:
        rendered = self._cutter.cut([chat.rendered(text, words) for text in texts], self._maximum)
        encodings = self._checked(encoded_batch(self._tokenizer.encode_batch, rendered, add_special_tokens=False))
        return [
            chat.ended(encoding, text, words, maximum=self._maximum)
            for encoding, text in zip(encodings, texts, strict=True)
        ]

    def _encoded_at(self, texts: Sequence[str], prompt: str | None, maximum: int) -> list[Any]:
        """Encodings of texts with a prompt, cut at so many tokens."""
        words = prompt_words(self._prompts, self._default_prompt, prompt)
        self._tokenizer.enable_truncation(maximum, direction=self._cut_side)
        try:
            cut = self._cutter.cut([words + text for text in texts], maximum)
            return self._checked(encoded_batch(self._tokenizer.encode_batch, cut), maximum=maximum)
        finally:
            self._tokenizer.enable_truncation(max_length=self._maximum, direction=self._cut_side)

    def _encoded(self, texts: Sequence[Text]) -> list[Any]:
        return encoded_batch(self._tokenizer.encode_batch, self._cutter.cut(texts, self._maximum))

    @property
    def context_id(self) -> int:
        """Where the context stands in a pair of question and context: XLNet was trained with the context first."""
        return 0 if self._pad_left else 1

    def pieces(self, text: str, *, stride: int | None = None) -> list[Any]:
        """Encodings of one text: cut at the longest sequence, or whole in pieces that overlap by `stride` tokens."""
        if stride is None:
            return self._checked(self._encoded([text]))
        return self._overflowing((text,), stride=min(stride, self._maximum // 2), strategy="longest_first")

    def windows(self, question: str, context: str, *, stride: int) -> list[Any]:
        """Encodings of a question with successive pieces of a long context that overlap by `stride` tokens."""
        special = self._tokenizer.num_special_tokens_to_add(is_pair=True)
        [short] = self._cutter.beginnings([question], self._maximum)
        room = (
            self._maximum
            - len(encoded_batch(self._tokenizer.encode_batch, [short], add_special_tokens=False)[0])
            - special
        )
        if room < 1:
            raise ValueError(f"The question leaves no room for a context in {self._maximum} tokens.")
        pair = (context, question) if self._pad_left else (question, context)
        strategy = "only_first" if self._pad_left else "only_second"
        return self._overflowing(pair, stride=min(stride, room // 2), strategy=strategy)

    def premise_rows(self, premise: str, hypotheses: Sequence[str]) -> list[Row]:
        """Pairs of which only the premise is cut: a hypothesis must be read whole."""
        self._tokenizer.enable_truncation(self._maximum, strategy="only_first", direction=self._cut_side)
        try:
            return self.rows([(premise, hypothesis) for hypothesis in hypotheses])
        finally:
            self._tokenizer.enable_truncation(max_length=self._maximum, direction=self._cut_side)

    def _overflowing(self, texts: Sequence[str], *, stride: int, strategy: str) -> list[Any]:
        self._tokenizer.enable_truncation(self._maximum, stride=stride, strategy=strategy, direction=self._cut_side)
        try:
            [first] = encoded_batch(self._tokenizer.encode_batch, [tuple(texts) if len(texts) > 1 else texts[0]])
        finally:
            self._tokenizer.enable_truncation(max_length=self._maximum, direction=self._cut_side)
        return self._checked([first, *first.overflowing], whole=True)

    def batch(self, rows: Sequence[Row], *, length: int = 0) -> dict[str, Array]:
        """The engine's inputs for these rows, padded to the longest of them, or to `length` within the profile."""
        width = max(min(length, self._maximum), self._minimum, *(len(row.ids) for row in rows))
        shape = (len(rows), width)
        arrays = {
            "input_ids": np.full(shape, self._pad_id, np.int64),
            "attention_mask": np.zeros(shape, np.int64),
            "token_type_ids": np.full(shape, self._pad_type_id, np.int64),
        }
        for index, row in enumerate(rows):
            size = len(row.ids)
            columns = slice(width - size, width) if self._pad_left else slice(0, size)
            arrays["input_ids"][index, columns] = row.ids
            arrays["attention_mask"][index, columns] = 1
            arrays["token_type_ids"][index, columns] = row.type_ids
        return {name: arrays[name] for name in self._inputs}


def groups_of(lengths: Sequence[int], policy: str, maximum_batch: int, stretch: float = STRETCH) -> Iterator[list[int]]:
    """Which rows go through the engine together. Policies: `alone`, `equal-length`, `rounded`, `packed`,
    `padded`.

    Rows are taken in order of length, and `padded` rows share a call only while the longest has at most `stretch` times
    the tokens of the shortest. Calls have few sizes, but for `packed` rows: there the engine sees to that.
    """
    widths = [width_of(length, policy) for length in lengths]
    order = sorted(range(len(widths)), key=widths.__getitem__)
    limit = 1 if policy == "alone" else maximum_batch
    stretch = {"padded": stretch, "packed": PACKED_STRETCH}.get(policy, 1.0)
    fitting = _FITTING.get(policy, _fitting_any_length)
    group: list[int] = []
    for index in order:
        full = len(group) == limit or (len(group) + 1) * widths[index] ** 2 > MOST_PAIRS
        if group and (full or widths[index] > stretch * widths[group[0]]):
            yield from _few_sizes(group, limit, fitting)
            group = []
        group.append(index)
    yield from _few_sizes(group, limit, fitting)


def width_of(length: int, policy: str) -> int:
    """How many tokens a row of this length is padded to by itself. INT8 engines answer a text a little differently at
    another width, so a `rounded` row has this one whoever shares its call; a `packed` one has it at least.
    """
    step = _STEPS.get(policy, 1)
    return -(-length // step) * step


def _few_sizes(group: list[int], limit: int, fitting: Callable[[int], int]) -> Iterator[list[int]]:
    """An engine prepares itself for every size of every length that it meets: OpenVINO takes 3 ms and half a megabyte
    for each with a small encoder, more than the call itself.
    """
    begin = 0
    while left := len(group) - begin:
        size = limit if left >= limit else fitting(left)
        yield group[begin : begin + size]
        begin += size


def _fitting_any_length(rows: int) -> int:
    """The largest power of two."""
    return 1 << (rows.bit_length() - 1)


def _fitting_few_lengths(rows: int) -> int:
    """All of few rows, else the largest multiple of four."""
    return rows if rows <= 8 else rows // 4 * 4


_FITTING: dict[str, Callable[[int], int]] = {"rounded": _fitting_few_lengths, "packed": lambda rows: rows}


def infer_rows(
    infer: Infer,
    encoder: TextEncoder,
    rows: Sequence[Row],
    *,
    policy: str,
    maximum_batch: int,
    stretch: float = STRETCH,
    infer_many: InferMany | None = None,
) -> dict[str, Array]:
    """Outputs in the order of `rows`, whatever groups the engine saw; `infer_many` may run groups side by side.

    Outputs with an axis of tokens begin at each row's first token and are filled up to the longest row with NaN,
    integers with -1.
    """
    results: dict[str, Array] = {}
    widest = max((len(row.ids) for row in rows), default=0)
    groups = list(groups_of([len(row.ids) for row in rows], policy, maximum_batch, stretch))
    calls = [batch_of(encoder, [rows[index] for index in group], policy) for group in groups]
    answers = infer_many(calls) if infer_many else map(infer, calls)
    for group, inputs, outputs in zip(groups, calls, answers, strict=True):
        for name, array in outputs.items():
            axes = SEQUENCE_AXES.get(name, ())
            if name not in results:
                results[name] = _room(array, axes, len(rows), widest)
            if not axes:
                results[name][group] = array
                continue
            mask = mask_of(inputs, [rows[index] for index in group])
            for index, unpadded_row in zip(group, unpadded(array, mask, axes), strict=True):
                results[name][(index, *(slice(size) for size in unpadded_row.shape))] = unpadded_row
    return results


def batch_of(encoder: TextEncoder, rows: Sequence[Row], policy: str) -> dict[str, Array]:
    """The engine's inputs for rows that share a call under a policy."""
    return encoder.batch(rows, length=width_of(max(len(row.ids) for row in rows), policy))


def unpadded(array: Array, mask: Array, axes: Sequence[int]) -> list[Array]:
    """Each row's own part of an output: the places along its token axes where its mask is 1."""
    rows = []
    for whole, kept in zip(array, mask.astype(bool), strict=True):
        row = whole
        for axis in axes:
            row = np.compress(kept, row, axis=axis - 1)
        rows.append(row)
    return rows


def mask_of(inputs: Mapping[str, Array], rows: Sequence[Row]) -> Array:
    """The mask that the engine was given, or for an engine that takes none the rows' lengths from the left."""
    if "attention_mask" in inputs:
        return inputs["attention_mask"]
    width = next(iter(inputs.values())).shape[1]
    return np.asarray([np.arange(width) < len(row.ids) for row in rows])


def joined_rows(rows: Sequence[Array]) -> Array:
    """Rows of unlike lengths as one array, filled up with NaN, integers with -1."""
    shape = tuple(max(sizes) for sizes in zip(*(row.shape for row in rows), strict=True))
    whole = np.full((len(rows), *shape), _absent(rows[0].dtype), rows[0].dtype)
    for index, row in enumerate(rows):
        whole[(index, *(slice(size) for size in row.shape))] = row
    return whole


def _room(array: Array, axes: Sequence[int], rows: int, widest: int) -> Array:
    shape = [rows, *(widest if axis in axes else size for axis, size in enumerate(array.shape) if axis)]
    if not axes:
        return np.empty(shape, array.dtype)
    return np.full(shape, _absent(array.dtype), array.dtype)


def _absent(kind: Any) -> float:
    return -1 if np.issubdtype(kind, np.integer) else np.nan


def softmax(logits: Array) -> Array:
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    exponents = np.exp(shifted)
    return np.asarray(exponents / exponents.sum(axis=-1, keepdims=True), np.float32)
