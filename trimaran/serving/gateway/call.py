"""One request on its way through the gateway: choose the model, check the limits, wait for a turn, ask Triton."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from trimaran.runtime.text import Text
from trimaran.runtime.wire import COUNTS
from trimaran.serving.client import AsyncClient
from trimaran.serving.gateway.admission import Turns
from trimaran.serving.gateway.catalogue import ServedModel
from trimaran.serving.gateway.refusals import too_large
from trimaran.serving.gateway.settings import RateLimit

if TYPE_CHECKING:
    from trimaran.serving.gateway.app import Gateway

Answer = TypeVar("Answer")
Reply = dict[str, Any]
# Counting the tokens of more characters than this would delay other requests, so a thread does it.
_SHORT_CHARACTERS = 8192
# The work of one text at admission. A text with more tokens, or more characters to tokenise, counts as several.
_TOKENS_A_TEXT = 256
_CHARACTERS_A_TEXT = 8192
# The characters that may be read for each byte of the largest body.
_READ_A_BYTE = 2
# An estimate for short requests: English has four or five, Chinese has one.
_CHARACTERS_A_TOKEN = 3


@dataclass
class Call:
    """Filled in as facts become known; the access log and the metrics read it at the end."""

    gateway: Gateway
    request_id: str
    # As they were sent. A dictionary of bytes is several times faster to read than Starlette's Headers.
    request_headers: Mapping[bytes, bytes]
    # A moment of time.monotonic().
    deadline: float
    # Sent on to Triton.
    triton_headers: dict[str, str] = field(default_factory=dict)
    # The network address of the caller.
    address: str = ""
    # The name of the caller's key.
    caller: str = ""
    # The limit of texts that the key has of its own.
    text_rate: RateLimit | None = None
    # The tasks of the models that answer the path.
    tasks: tuple[str, ...] = ()
    model: str = ""
    # The version of the model that answered.
    version: str = ""
    texts: int = 0
    tokens: int = 0
    # What Triton has to do, in texts of ordinary length.
    work: int = 0
    # The number of texts of which the model reads only the beginning.
    truncated: int = 0
    queue_s: float = 0.0
    body_was_read: bool = False

    @property
    def account(self) -> str:
        """To whom the work is counted: the key, or the address where there are no keys."""
        return self.caller or self.address

    async def pick(self, name: str | None) -> ServedModel:
        """The model of this name, or the only one for the tasks of the path. Raises Refusal (404, 422, 503)."""
        served = await self.gateway.catalogue.pick(name, self.tasks)
        self.model = served.name
        return served

    def check_count(self, texts: int) -> None:
        """Raises Refusal (413)."""
        limit = self.gateway.settings.limits.texts
        if texts > limit:
            raise too_large("The texts of the request", texts, limit)
        self.texts = texts

    async def check_size(
        self,
        served: ServedModel,
        texts: Sequence[Text],
        *,
        whole: bool,
        times: int,
        prompt: str | None,
        beside: int = 0,
        model_counts: bool = False,
    ) -> bool:
        """Count texts, characters and tokens. Raises Refusal (413, 429) above a limit.

        With `whole`, long texts are read to their end. Each text is read `times` times, after the prompt. `beside` are
        the characters that are sent with each text, such as the words of labels. With `model_counts`, the model says
        how many tokens it read: a short request is tokenised only there. Returns whether the tokens are counted.
        """
        self.check_count(len(texts) * times)
        self.gateway.text_rates.take(self.account, self.text_rate, count=self.texts)
        limits = self.gateway.settings.limits
        sizes = [len(part) for text in texts for part in ((text,) if isinstance(text, str) else text)]
        if max(sizes) > limits.characters:
            raise too_large("The characters of a text", max(sizes), limits.characters)
        # A query is read with each document, a text with each label: a small body can mean much to read.
        to_read, most = sum(sizes) * times + beside * len(texts), _READ_A_BYTE * limits.body_bytes
        if to_read > most:
            raise too_large("The characters to read, repeated ones included", to_read, most)
        if model_counts and sum(sizes) <= _SHORT_CHARACTERS:
            most_tokens = len(texts) * served.vocabulary.longest
            if most_tokens <= limits.tokens:
                estimate = min(sum(sizes) // _CHARACTERS_A_TOKEN, most_tokens)
                self.work = max(self.texts, -(-estimate // _TOKENS_A_TEXT))
                return False
        count_tokens = functools.partial(
            served.vocabulary.count, texts, whole=whole, prompt=prompt, most=limits.tokens // times
        )
        if sum(sizes) > _SHORT_CHARACTERS:
            count = await self.in_thread(count_tokens)
        else:
            count = count_tokens()
        self.tokens, self.truncated = count.tokens * times, count.truncated
        characters = count.characters * times + beside * len(texts)
        self.work = max(self.texts, -(-self.tokens // _TOKENS_A_TEXT), -(-characters // _CHARACTERS_A_TEXT))
        if self.tokens > limits.tokens:
            raise too_large("The tokens of the request", self.tokens, limits.tokens)
        return True

    def check_answer(self, size_bytes: int) -> None:
        """Raises Refusal (413): an answer is in memory as a whole."""
        if size_bytes > self.gateway.settings.limits.answer_bytes:
            raise too_large("The bytes of the answer", size_bytes, self.gateway.settings.limits.answer_bytes)

    async def in_thread(self, read: Callable[..., Answer], *, has_begun: bool = False) -> Answer:
        """What `read` gives for a large request, in its turn. It is called with `is_over`, which says whether the
        caller has hung up. Raises Refusal (503), but not for a request that `has_begun`.
        """
        is_over = threading.Event()
        try:
            async with self.gateway.counting.room(1, self.account, has_begun=has_begun):
                return await asyncio.to_thread(read, is_over=is_over.is_set)
        finally:
            is_over.set()

    async def ask(
        self,
        served: ServedModel,
        texts: Sequence[Text],
        question: Callable[[AsyncClient], Awaitable[Answer]],
        *,
        whole: bool = False,
        times: int = 1,
        prompt: str | None = None,
        beside: int = 0,
        model_counts: bool = False,
        bytes_a_token: int = 0,
    ) -> Answer:
        """The model's answer. A large request is sent in parts, and each waits for a turn of its own.

        `beside`: the characters that are sent with each text. `model_counts`: the model reads each text once, so what
        it counts is what the request has. `bytes_a_token`: what each token that is read adds to the answer. Raises
        Refusal.
        """
        is_counted = await self.check_size(
            served,
            texts,
            whole=whole,
            times=times,
            prompt=prompt,
            beside=beside,
            model_counts=model_counts and served.counts_tokens,
        )
        self.check_answer(self.tokens * bytes_a_token)
        turns = Turns(self.gateway.admission, self.work, self.account)
        client = self.gateway.client.using(
            timeout_s=max(0.001, self.deadline - time.monotonic()),
            headers=self.triton_headers,
            request_id=self.request_id,
            turns=turns,
            counts=None if is_counted else COUNTS,
        )
        try:
            answer = await question(client)
        finally:
            self.queue_s = turns.waited_s
        self.version = client.answered_by
        if not is_counted:
            # A version without these counts may have answered, in the moment of a promotion.
            self.tokens, self.truncated = max(0, client.tokens_read), max(0, client.texts_cut)
        self.gateway.catalogue.note_answer(served.name)
        return answer

    def reply(self, **facts: Any) -> Reply:
        usage = {"prompt_tokens": self.tokens, "total_tokens": self.tokens}
        return {"model": self.model, **facts, "usage": usage}
