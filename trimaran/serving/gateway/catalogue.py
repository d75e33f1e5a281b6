"""Which models are offered, whether each answers, and the facts that the gateway needs of them."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimaran.core.errors import Overloaded, TrimaranError
from trimaran.serving.client import AsyncClient
from trimaran.serving.client.calls import Model
from trimaran.serving.gateway.refusals import Refusal, invalid
from trimaran.serving.gateway.vocabulary import Vocabulary, tokenizer_file

_CANARY = "A canary sings in the mine."
_ASK_AGAIN_S = 1.0
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Served:
    """`batch` is the most texts that one request to Triton holds."""

    name: str
    task: str
    version: int
    created: int
    batch: int
    vocabulary: Vocabulary


class Catalogue:
    """What Triton has ready and the repository holds. `ready` is by canaries, not by Triton's word."""

    def __init__(self, client: AsyncClient, repository: Path, *, timeout_s: float) -> None:
        self._client = client.using(timeout_s=timeout_s)
        self._repository = repository
        self._models: dict[str, Served] = {}
        self._seen = -math.inf
        self._refreshing = asyncio.Lock()
        self._heard: dict[str, float] = {}
        self.silent: dict[str, str] = {}
        self.reachable = False

    @property
    def models(self) -> tuple[Served, ...]:
        return tuple(self._models.values())

    @property
    def ready(self) -> bool:
        return self.reachable and bool(self._models) and not self.silent

    async def pick(self, name: str | None, tasks: tuple[str, ...]) -> Served:
        """The model of this name, or the only one of these tasks. Raises Refusal (404, 422)."""
        if name is None:
            return self._only(tasks)
        if name not in self._models:
            await self._look_again()
        found = self._models.get(name)
        if found is None or found.task not in tasks:
            raise Refusal(404, "model_not_found", f"No such model for {' or '.join(tasks)}.", param="model")
        return found

    def heard(self, name: str) -> None:
        """A caller got an answer of this model."""
        self._heard[name] = time.monotonic()

    async def refresh(self) -> None:
        """Raises TrimaranError when Triton does not answer."""
        async with self._refreshing:
            self._seen = time.monotonic()
            try:
                versions = await self._client.versions()
                self._client.forget()
                found = {name: await self._served(name, version) for name, version in versions.items()}
            except TrimaranError:
                self.reachable = False
                raise
            self._models = {name: served for name, served in found.items() if served}
            self.reachable = True

    async def sing(self) -> None:
        """One canary through every model; one that is busy with others is not dead."""
        silent = {}
        for served in self.models:
            began = time.monotonic()
            try:
                model = await self._client.model(served.name)
                answer = await CANARIES[served.task](self._client, model)
                if served.task == "embedding" and not _makes_sense(answer):
                    silent[served.name] = "its vector is not made of finite numbers, or is all zero"
            except TrimaranError as error:
                busy = isinstance(error, Overloaded) or self._heard.get(served.name, -math.inf) > began
                if not busy:
                    silent[served.name] = type(error).__name__
        for name in sorted(set(silent) - set(self.silent)):
            log.warning("Model %s does not answer a canary: %s", name, silent[name])
        self.silent = silent

    async def _served(self, name: str, version: int) -> Served | None:
        known = self._models.get(name)
        if known is not None and known.version == version:
            return known
        model = await self._client.model(name)
        if model.task not in CANARIES:
            return None
        folder = self._repository / name / str(version)
        try:
            vocabulary = await asyncio.to_thread(Vocabulary, folder)
            created = int(tokenizer_file(folder).stat().st_mtime)
        except (OSError, ValueError, KeyError) as error:
            log.warning("Model %s is not offered: %s has no tokenizer to read (%s).", name, folder, error)
            return None
        return Served(name, model.task, version, created, model.max_batch_size, vocabulary)

    async def _look_again(self) -> None:
        """A model may have come a moment ago; names that do not exist must not make work."""
        if time.monotonic() - self._seen >= _ASK_AGAIN_S:
            await self.refresh()

    def _only(self, tasks: tuple[str, ...]) -> Served:
        found = [served for served in self.models if served.task in tasks]
        if len(found) == 1:
            return found[0]
        if found:
            raise invalid("Several models do this. Name one in `model`; /v1/models lists them.", param="model")
        raise Refusal(404, "model_not_found", f"No model for {' or '.join(tasks)} is served.", param="model")


CANARIES: dict[str, Callable[[AsyncClient, Model], Any]] = {
    "embedding": lambda client, model: client.embed(model.name, [_CANARY]),
    "text-classification": lambda client, model: client.classify(model.name, [_CANARY]),
    "zero-shot-classification": lambda client, model: client.classify(model.name, [_CANARY], labels=["song"]),
    "token-classification": lambda client, model: client.entities(model.name, [_CANARY]),
    "question-answering": lambda client, model: client.answer(model.name, [("Who sings?", _CANARY)]),
    "fill-mask": lambda client, model: client.fill(model.name, [f"A {model.parameters.get('mask_token', '')} sings."]),
    "rerank": lambda client, model: client.rerank(model.name, "Who sings?", [_CANARY]),
    "sparse-embedding": lambda client, model: client.sparse(model.name, [_CANARY]),
    "feature-extraction": lambda client, model: client.tokens(model.name, [_CANARY]),
}


def _makes_sense(vectors: Any) -> bool:
    numbers = vectors.ravel().tolist()
    return all(math.isfinite(number) for number in numbers) and any(numbers)
