"""41 texts of 200,000 characters were tokenised whole, twice, and then cut to 256 tokens. Others waited 7.4 seconds."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, processors

from tests.attacks.tokenizers_of_every_kind import KINDS
from tests.tiny import tiny_serving, tiny_tokenizer
from trimaran.core.late_interaction import maximum_similarities
from trimaran.core.whole_texts import halves
from trimaran.runtime.cutting import TextCutter
from trimaran.runtime.text import TextEncoder
from trimaran.serving.client import Model, calls
from trimaran.serving.client.columns import CHARACTERS_PER_REQUEST
from trimaran.serving.client.late_interaction import Compared
from trimaran.serving.gateway.admission import Admission, RateLimiter
from trimaran.serving.gateway.call import Call
from trimaran.serving.gateway.compatible_messages import TokenizeRequest
from trimaran.serving.gateway.refusals import Refusal
from trimaran.serving.gateway.routes import ROUTES, embedded, embedding_texts
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


@pytest.mark.parametrize("overflow", ["windows", "windows-max"])
def test_texts_that_are_read_to_their_end_are_counted_to_their_end(tmp_path: Path, overflow: Any) -> None:
    """They were counted and weighed as if they were cut: four million tokens beside a limit of 300,000."""
    vocabulary = _vocabulary(tmp_path)
    served = SimpleNamespace(vocabulary=vocabulary, counts_tokens=True, name="m")
    asked: list[Call] = []

    async def ask(texts: list[str]) -> None:
        call = _call(capacity=1)
        call.gateway.admission = call.gateway.counting
        asked.append(call)
        with contextlib.suppress(AttributeError):  # there is no client to ask
            await embedded(call, served, texts, None, dimensions=None, overflow=overflow)  # type: ignore

    asyncio.run(ask(["cat " * 10_000] * 4))
    assert (asked[0].tokens, asked[0].work) == (4 * 10_002, -(-4 * 10_002 // 256))
    with pytest.raises(Refusal, match="The tokens of the request"):
        asyncio.run(ask(["cat " * 45_000] * 41))


def test_a_text_is_halved_where_it_was_without_a_look_at_every_character() -> None:
    """Python looked at each character, on the event loop: half a second for 8 MB without a space."""

    def by_characters(text: str) -> int:
        middle = len(text) // 2
        after = next((index for index in range(middle, len(text)) if text[index].isspace()), len(text))
        before = next((index for index in range(middle - 1, 0, -1) if text[index].isspace()), 0)
        nearest = after if after - middle <= middle - before else before
        return nearest if 0 < nearest < len(text) - 1 else middle

    for length in range(2, 8):
        for characters in itertools.product("a \x1c", repeat=length):
            text = "".join(characters)
            assert halves(text) == (text[: by_characters(text)], text[by_characters(text) :])


def test_no_more_token_ids_are_decoded_than_a_request_may_have(tmp_path: Path) -> None:
    """Each row is decoded and encoded up to four times: four million ids kept a place for half a minute."""
    vocabulary = SimpleNamespace(longest=8192, texts_of_ids=lambda *_, **__: pytest.fail("decoded"))
    served = SimpleNamespace(vocabulary=vocabulary)
    with pytest.raises(Refusal, match="The tokens of the request: 303,104"):
        asyncio.run(embedding_texts(_call(capacity=1), served, [[1] * 8192] * 37))  # type: ignore[arg-type]


def test_late_interaction_is_computed_beside_the_event_loop_until_its_caller_hangs_up() -> None:
    """A query of 8,192 tokens with 57,000 tokens of documents is seconds of multiplying, and took 0.5 GB a document."""
    begun, over = threading.Event(), threading.Event()

    class Slow(Compared):
        def scores(self, is_over: Callable[[], bool] = lambda: False) -> list[float]:
            begun.set()
            while not is_over():
                time.sleep(0.001)
            over.set()
            return []

    large = Slow(np.ones((8192, 8), np.float32), [np.ones((8192, 8), np.float32)] * 4, "")

    async def scenario() -> None:
        call = _call(capacity=1)
        call.pick = lambda name: asyncio.sleep(0, SimpleNamespace(token_width=8, name="m"))  # type: ignore
        call.ask = lambda *_, **__: asyncio.sleep(0, large)  # type: ignore
        body = ROUTES["/score"].request.model_validate({"query": "a", "documents": ["b"]})  # type: ignore[union-attr]
        task = asyncio.create_task(ROUTES["/score"].handle(call, body))
        assert await asyncio.to_thread(begun.wait, 30), "the event loop is free meanwhile"
        task.cancel()
        assert await asyncio.to_thread(over.wait, 30)

    asyncio.run(scenario())
    few = Compared(large.query[:2], [large.query[:3]] * 5, "")
    assert few.scores() == [pytest.approx(2.0)] * 5
    stop = iter([False, False, True]).__next__
    assert few.scores(stop) == [pytest.approx(2.0)] * 2


def test_long_documents_are_compared_in_blocks() -> None:
    generator = np.random.default_rng(0)
    query, document = generator.normal(size=(7, 16)), generator.normal(size=(2500, 16))
    wanted = (query @ document.T).max(axis=1).sum()
    for length in (1, 1024, 1025, 2500):
        wanted = (query @ document[:length].T).max(axis=1).sum()
        assert maximum_similarities(query, [document[:length]], similarity="maxsim") == pytest.approx(wanted, rel=1e-6)


def test_long_texts_go_to_triton_in_requests_of_few_texts() -> None:
    """Requests of other callers get their turn between them."""
    model = Model("m", "embedding", 32, frozenset({"TEXT"}), {"EMBEDDING": (8,)}, {})
    ask = calls.embed(model, ["x" * LONG] * 40)
    assert [len(request["TEXT"]) for request in ask.requests] == [1] * 40


def test_no_request_is_more_work_than_triton_has_at_a_time() -> None:
    """256 documents or labels of 1,000 characters were one request: everybody waited for seconds, behind one stub."""
    documents = calls.rerank(
        Model("m", "rerank", 32, frozenset(), {"INDICES": (-1,)}, {}), "q" * 100, ["x" * 1000] * 256
    )
    inputs = frozenset({"TEXT", "CANDIDATE_LABELS"})
    model = Model("m", "zero-shot-classification", 32, inputs, {"LABELS": (-1,)}, {})
    labelled = calls.classify(model, ["x" * 1000] * 64, labels=["a", "b", "c", "d"])
    for requests, words in ((documents.requests, "DOCUMENTS"), (labelled.requests, "CANDIDATE_LABELS")):
        pairs = [request[words].size for request in requests]
        assert sum(pairs) == 256 and max(pairs) * 1000 <= CHARACTERS_PER_REQUEST + 4000


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
