"""The models that the gateway offers: which are ready, which are loading, and what the gateway must know of each."""

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
from trimaran.core.model_config import PROOF, UNPROVEN
from trimaran.serving.client import AsyncClient, Model
from trimaran.serving.gateway.refusals import invalid, model_not_found, not_ready
from trimaran.serving.gateway.vocabulary import Vocabulary, tokenizer_file

_CANARY = "A canary sings in the mine."
# The request that /readyz goes by, for each task.
CANARIES: dict[str, Callable[[AsyncClient, Model], Any]] = {
    "embedding": lambda client, model: client.embed(model.name, [_CANARY]),
    "text-classification": lambda client, model: client.classify(model.name, [_CANARY]),
    "zero-shot-classification": lambda client, model: client.classify(model.name, [_CANARY], labels=["song"]),
    "token-classification": lambda client, model: client.entities(model.name, [_CANARY]),
    "question-answering": lambda client, model: client.answer(model.name, [("Who sings?", _CANARY)]),
    "fill-mask": lambda client, model: client.fill(model.name, [f"A {model.parameters.get('mask_token', '')} sings."]),
    "rerank": lambda client, model: client.rerank(model.name, "Who sings?", [_CANARY]),
    "multiple-choice": lambda client, model: client.choose(model.name, _CANARY, ["Yes.", "No."]),
    "next-sentence": lambda client, model: client.follows(model.name, [(_CANARY, _CANARY)]),
    "sparse-embedding": lambda client, model: client.sparse(model.name, [_CANARY]),
    "feature-extraction": lambda client, model: client.tokens(model.name, [_CANARY]),
}
_REFRESH_AT_MOST_EVERY_S = 1.0
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ServedModel:
    name: str
    task: str
    version: int
    # Seconds since 1970.
    created: int
    # The most texts that one request to Triton holds.
    batch: int
    vocabulary: Vocabulary
    # Laid out without a proof.
    unproven: bool = False


class Catalogue:
    """The models that are ready in Triton and whose tokenizer is in the repository."""

    def __init__(self, client: AsyncClient, repository: Path, *, timeout_s: float) -> None:
        self._client = client.using(timeout_s=timeout_s)
        self._repository = repository
        # Models that are ready or were ready before.
        self._known: dict[str, ServedModel] = {}
        # Known models that are not ready now: Triton unloads a model to load it again.
        self._loading: set[str] = set()
        self._refreshed_at = -math.inf
        self._refreshing = asyncio.Lock()
        self._answered_at: dict[str, float] = {}
        # Models that did not answer their last canary, with the reason.
        self.silent: dict[str, str] = {}
        self.reachable = False

    @property
    def models(self) -> tuple[ServedModel, ...]:
        return tuple(served for name, served in self._known.items() if name not in self._loading)

    @property
    def ready(self) -> bool:
        """By canaries: Triton says that it is ready even if the process of a model has died."""
        return self.reachable and bool(self.models) and not self.silent

    async def pick(self, name: str | None, tasks: tuple[str, ...]) -> ServedModel:
        """The model of this name, or the only one for these tasks.

        Raises Refusal: 404 if there is none, 422 if there are several, 503 while it is loading or Triton is away.
        """
        if name is not None and name not in self._known:
            await self._refresh_if_old()
        fitting = [served for served in self._known.values() if served.task in tasks and name in (None, served.name)]
        if len(fitting) > 1:
            raise invalid("Several models do this. Name one in `model`; /v1/models lists them.", param="model")
        if fitting and fitting[0].name not in self._loading:
            return fitting[0]
        if fitting or not self.reachable:
            raise not_ready()
        raise model_not_found(tasks)

    def note_answer(self, name: str) -> None:
        """A caller got an answer from this model."""
        self._answered_at[name] = time.monotonic()

    async def refresh(self) -> None:
        """Raises TrimaranError when Triton does not answer."""
        async with self._refreshing:
            self._refreshed_at = time.monotonic()
            try:
                versions = await self._client.versions()
                self._client.forget()
                ready = {name: await self._served(name, version) for name, version in versions.items()}
            except TrimaranError:
                self.reachable = False
                raise
            self._loading = {name for name in self._known if name not in versions and self._is_in_repository(name)}
            loading = {name: self._known[name] for name in self._loading}
            self._known = {**loading, **{name: served for name, served in ready.items() if served}}
            self.reachable = True

    async def send_canaries(self) -> None:
        """Ask every model one question. A model that is busy with other requests is not silent."""
        silent = {}
        for served in self.models:
            began = time.monotonic()
            try:
                model = await self._client.model(served.name)
                answer = await CANARIES[served.task](self._client, model)
                if served.task == "embedding" and not _is_plausible(answer):
                    silent[served.name] = "its vector is not made of finite numbers, or is all zero"
            except TrimaranError as error:
                busy = isinstance(error, Overloaded) or self._answered_at.get(served.name, -math.inf) > began
                if not busy:
                    silent[served.name] = type(error).__name__
        for name in sorted(set(silent) - set(self.silent)):
            log.warning("Model %s does not answer a canary: %s", name, silent[name])
        self.silent = silent

    async def _served(self, name: str, version: int) -> ServedModel | None:
        """None for a model that the gateway does not offer."""
        known = self._known.get(name)
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
            log.warning("Model %s is not offered: its tokenizer in %s cannot be read (%s).", name, folder, error)
            return None
        unproven = model.parameters.get(PROOF) == UNPROVEN
        return ServedModel(name, model.task, version, created, model.max_batch_size, vocabulary, unproven)

    async def _refresh_if_old(self) -> None:
        """A model may have come a moment ago, but names that do not exist must not cause work."""
        if time.monotonic() - self._refreshed_at >= _REFRESH_AT_MOST_EVERY_S:
            await self.refresh()

    def _is_in_repository(self, name: str) -> bool:
        return (self._repository / name / "config.pbtxt").is_file()


def _is_plausible(vectors: Any) -> bool:
    numbers = vectors.ravel().tolist()
    return all(math.isfinite(number) for number in numbers) and any(numbers)
