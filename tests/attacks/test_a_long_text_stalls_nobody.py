"""41 texts of 200,000 characters were tokenised whole, twice, and then cut to 256 tokens. Others waited 7.4 seconds."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, processors

from tests.attacks.tokenizers_of_every_kind import KINDS
from tests.tiny import tiny_serving, tiny_tokenizer
from trimaran.runtime.cutting import TextCutter
from trimaran.runtime.text import TextEncoder
from trimaran.serving.client import Model, calls
from trimaran.serving.gateway.admission import Admission, RateLimiter
from trimaran.serving.gateway.call import Call
from trimaran.serving.gateway.compatible_messages import TokenizeRequest
from trimaran.serving.gateway.routes import ROUTES, embedding_texts
from trimaran.serving.gateway.settings import RequestLimits
from trimaran.serving.gateway.vocabulary import TokenCount, Vocabulary

LONG = 200_000
# Pieces that are one token or many, that vanish or grow when normalised, and that a cut may go through.
PIECES = ("a ", "abc", "é", "e\u0301", "\u0301" * 30, "中", "中文 ", "ﷺ", "  ", " " * 40, "\n\t", "...", "12", "a" * 50,
          "<mask>", " <mask>", "<mas", "[CLS]", "\u200b" * 9, "😀", "Ω", "'s ", "\x00", "▁")  # fmt: skip
TEXTS = st.lists(
    st.tuples(st.lists(st.sampled_from(PIECES), min_size=1, max_size=4), st.integers(1, 8)), min_size=1, max_size=4
).map(lambda runs: "".join("".join(pieces) * times for pieces, times in runs))


@functools.cache
def tokenizer_of(kind: str) -> Tokenizer:
    return KINDS[kind]()


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25, deadline=None)
@given(text=TEXTS, tokens=st.integers(1, 6))
@example(text="1234567" * 400, tokens=4)
@example(text="a" * 5000 + " b", tokens=2)
@example(text="b" + " " * 5000 + "<mask>", tokens=3)
@example(text="a " * 20 + "\u0301" * 5000 + " b c d", tokens=21)
def test_a_cut_text_has_the_same_first_tokens(kind: str, text: str, tokens: int) -> None:
    tokenizer = tokenizer_of(kind)
    [cut] = TextCutter(tokenizer).beginnings([text], tokens)
    whole, beginning = (tokenizer.encode(part, add_special_tokens=False) for part in (text, cut))
    assert text.startswith(cut)
    assert beginning.ids[:tokens] == whole.ids[:tokens]
    assert beginning.offsets[:tokens] == whole.offsets[:tokens]
    assert (len(beginning.ids) > tokens) == (len(whole.ids) > tokens), "whether it is truncated stays known"


@pytest.mark.parametrize("kind", ["WordPiece", "byte-level BPE", "Unigram"])
@settings(max_examples=12, deadline=None)
@given(first=TEXTS, second=TEXTS, maximum=st.sampled_from([8, 9]))
def test_a_pair_is_truncated_as_if_it_had_been_read_whole(
    kind: str, first: str, second: str, maximum: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Of an odd number of tokens, the longer text gets one more: the cut may not change which that is."""
    path = _saved(kind, tmp_path_factory.getbasetemp() / f"{kind}.json")
    # The tokenizer makes an encoding of every overflow of one text with every overflow of the other.
    first, second = first[:160], second[:160]
    reader = TextEncoder(str(path), inputs=("input_ids",), minimum=1, maximum=maximum, pad_id=0)
    whole = Tokenizer.from_file(str(path))
    whole.enable_truncation(max_length=maximum)
    assert reader.encodings([(first, second)])[0].ids == whole.encode(first, second or None).ids
    assert reader.pieces(first)[0].offsets == whole.encode(first).offsets


def _saved(kind: str, path: Path) -> Path:
    if not path.is_file():
        tokenizer = Tokenizer.from_str(tokenizer_of(kind).to_str())
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")],
        )  # fmt: skip
        tokenizer.save(str(path))
    return path


class CountingTokenizer:
    """A tokenizer that counts the characters it is given."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.characters = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def encode_batch(self, texts: list[Any], **options: Any) -> Any:
        self.characters += sum(map(len, texts))
        return self._tokenizer.encode_batch(texts, **options)

    def encode_batch_fast(self, texts: list[Any], **options: Any) -> Any:
        self.characters += sum(map(len, texts))
        return self._tokenizer.encode_batch_fast(texts, **options)


@pytest.mark.parametrize("kind", ["WordPiece", "byte-level BPE", "Unigram"])
def test_the_stage_tokenises_no_more_of_a_long_text_than_it_needs(kind: str, tmp_path: Path) -> None:
    reader = TextEncoder(
        str(_saved(kind, tmp_path / "tokenizer.json")), inputs=("input_ids",), minimum=1, maximum=32, pad_id=0
    )
    counting = CountingTokenizer(reader._tokenizer)
    reader._tokenizer = reader._cutter._tokenizer = counting
    assert [len(row.ids) for row in reader.rows(["abc de. " * (LONG // 8)] * 3)] == [32] * 3
    assert 0 < counting.characters < 3 * LONG // 100


def test_the_gateway_counts_a_long_text_by_its_beginning_and_weighs_it_by_what_is_read(tmp_path: Path) -> None:
    vocabulary = _vocabulary(tmp_path)
    counting = CountingTokenizer(vocabulary._tokenizer)
    vocabulary._tokenizer = vocabulary._cutter._tokenizer = counting
    long = "the cat sat " * (LONG // 12)
    count = vocabulary.count([long] * 41, most=10**9)
    assert (count.tokens, count.truncated) == (41 * 16, 41)
    assert counting.characters < 41 * LONG // 100
    # One long word cannot be cut: it may be a single unknown token. It is weighed by its characters.
    assert vocabulary.count(["x" * LONG], most=10**9) == (3, 0, LONG)


def test_a_request_above_the_limit_of_tokens_is_not_tokenised_to_its_end(tmp_path: Path) -> None:
    vocabulary = _vocabulary(tmp_path)
    vocabulary._tokenizer = counting = CountingTokenizer(vocabulary._tokenizer)  # type: ignore[assignment]
    assert vocabulary.count(["the cat " * (LONG // 8)] * 41, whole=True, most=1000).tokens > 1000
    assert counting.characters <= 200_000


def test_work_is_weighed_by_tokens_and_characters_and_not_by_the_number_of_texts(tmp_path: Path) -> None:
    vocabulary = _vocabulary(tmp_path)

    def work(texts: list[str], *, whole: bool = False) -> int:
        call, served = _call(capacity=1), SimpleNamespace(vocabulary=vocabulary)
        asyncio.run(call.check_size(served, texts, whole=whole, times=1, prompt=None))  # type: ignore[arg-type]
        return call.work

    assert work(["the cat"] * 5) == 5
    assert work(["x" * LONG]) == -(-LONG // 8192)
    assert work(["the cat " * 1000], whole=True) == -(-2002 // 256)


def _call(capacity: int) -> Call:
    gateway = SimpleNamespace(
        counting=Admission(capacity=capacity, queue=100, patience_s=60),
        settings=SimpleNamespace(limits=RequestLimits()),
        text_rates=RateLimiter(None),
    )
    return Call(gateway, "id", {}, 0.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["texts", "token ids", "tokens"])
def test_no_more_large_requests_are_tokenised_at_a_time_than_there_are_cores(kind: str) -> None:
    now = most = 0
    lock = threading.Lock()

    def count(*given: object, is_over: Callable[[], bool], **options: object) -> Any:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.005)
        with lock:
            now -= 1
        return TokenCount(1, 0, 1)

    vocabulary = SimpleNamespace(count=count, texts_of_ids=count, tokens=count, longest=8, prompts={})
    served = SimpleNamespace(vocabulary=vocabulary, task="embedding")

    async def scenario() -> None:
        call = _call(capacity=2)
        call.pick = lambda name: asyncio.sleep(0, served)  # type: ignore
        call.gateway.catalogue = SimpleNamespace(models=(served,))  # type: ignore
        large = ["x" * 9000]
        requests = {
            "texts": lambda: call.check_size(served, large, whole=False, times=1, prompt=None),  # type: ignore
            "token ids": lambda: embedding_texts(call, served, [[1, 2]] * 9),  # type: ignore
            "tokens": lambda: ROUTES["/tokenize"].handle(call, TokenizeRequest(inputs=large)),
        }
        await asyncio.gather(*(requests[kind]() for _ in range(8)))
        assert (call.gateway.counting.in_flight, call.gateway.counting.waiting) == (0, 0)

    asyncio.run(scenario())
    assert most == 2


def test_a_large_request_is_not_tokenised_on_when_its_caller_hangs_up() -> None:
    begun, ended = threading.Event(), threading.Event()

    def count(*, is_over: Callable[[], bool]) -> Any:
        begun.set()
        while not is_over():
            time.sleep(0.001)
        ended.set()

    async def scenario() -> None:
        task = asyncio.create_task(_call(capacity=1).in_thread(count))
        await asyncio.to_thread(begun.wait, 30)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert await asyncio.to_thread(ended.wait, 30)

    asyncio.run(scenario())


def test_long_texts_go_to_triton_in_requests_of_few_texts() -> None:
    """Requests of other callers get their turn between them."""
    model = Model("m", "embedding", 32, frozenset({"TEXT"}), {"EMBEDDING": (8,)}, {})
    ask = calls.embed(model, ["x" * LONG] * 40)
    assert [len(request["TEXT"]) for request in ask.requests] == [2] * 20


def _vocabulary(folder: Path) -> Vocabulary:
    tiny_tokenizer(folder / "tokenizer.json")
    tiny_serving(folder)
    return Vocabulary(folder)


def test_nothing_is_cut_where_truncation_keeps_the_end_of_a_text(tmp_path: Path) -> None:
    path = _saved("WordPiece", tmp_path / "tokenizer.json")
    reader = TextEncoder(str(path), inputs=("input_ids",), minimum=1, maximum=8, pad_id=0, cut_side="left")
    whole = Tokenizer.from_file(str(path))
    whole.enable_truncation(max_length=8, direction="left")
    text = "a b c " * 500 + "d e"
    assert reader.encodings([text])[0].ids == whole.encode(text).ids
