"""The models that the gateway offers: which are ready, which are loading, and what the gateway must know of each."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from dataclasses import dataclass
from pathlib import Path

from trimaran.core.errors import Overloaded, TrimaranError
from trimaran.core.model_config import PROOF, UNPROVEN
from trimaran.core.remote_repository import RemoteRepository
from trimaran.core.repository import model_folders, models_in, versions_of
from trimaran.core.tasks import TASKS
from trimaran.runtime.tasks.hybrid_embedding import OUTPUTS
from trimaran.runtime.wire import COUNTS
from trimaran.serving.client import AsyncClient
from trimaran.serving.client.canary import PRIORITY, canary
from trimaran.serving.gateway.refusals import invalid, model_not_found, not_ready
from trimaran.serving.gateway.vocabulary import Vocabulary, tokenizer_file

_REFRESH_AT_MOST_EVERY_S = 0.25
_WAIT_FOR_STORE_S = 5.0
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
    # Whether its answers say how many tokens it read.
    counts_tokens: bool = False
    # The numbers that it gives for each token; 0 for a model that gives none.
    token_width: int = 0


class Catalogue:
    """The models that are ready in Triton and whose tokenizer is in the repository."""

    def __init__(
        self, client: AsyncClient, repository: Path, *, timeout_s: float, remote: RemoteRepository | None = None
    ) -> None:
        """`remote` keeps the `repository` like one in an object store."""
        # A canary has priority: a busy Triton is not a dead one.
        self._client = client.using(timeout_s=timeout_s, priority=PRIORITY)
        self._repository = repository
        self._remote = remote
        # Models that are ready or were ready before.
        self._known: dict[str, ServedModel] = {}
        # Models of the repository that are not ready now: Triton unloads a model to load it again, or has just begun.
        self._loading: set[str] = set()
        # Whether models of the repository are loaded only when somebody asks for it, by name.
        self._on_demand: dict[str, bool] = {}
        self._refreshed_at = -math.inf
        self._refreshing = asyncio.Lock()
        self._answered_at: dict[str, float] = {}
        # Models of Triton that are not in this repository, with their version: it is said once.
        self._not_offered: set[tuple[str, int]] = set()
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
        fitting = self._fitting(name, tasks)
        if not fitting or fitting[0].name in self._loading:
            await self._refresh_if_old()
            fitting = self._fitting(name, tasks)
        if len(fitting) > 1:
            raise invalid("Several models do this. Name one in `model`; /v1/models lists them.", param="model")
        if fitting and fitting[0].name not in self._loading:
            return fitting[0]
        may_come = name in self._loading if name else bool(self._loading)
        if fitting or may_come or not self.reachable:
            raise not_ready()
        raise model_not_found(tasks, [served.name for served in self.models if served.task in tasks])

    def _fitting(self, name: str | None, tasks: tuple[str, ...]) -> list[ServedModel]:
        """The models that may be meant. One with several outputs is meant only if none is made for this one alone."""
        fitting = [served for served in self._known.values() if served.task in tasks and name in (None, served.name)]
        return [served for served in fitting if OUTPUTS not in TASKS[served.task].served.options] or fitting

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
                await self._renew(versions)
                ready = {name: await self._served(name, version) for name, version in versions.items()}
            except TrimaranError:
                # A Triton that answers callers meanwhile is busy, and not away.
                self.reachable = max(self._answered_at.values(), default=-math.inf) > self._refreshed_at
                raise
            self._loading = await asyncio.to_thread(self._absent, set(versions))
            loading = {name: served for name, served in self._known.items() if name in self._loading}
            self._known = {**loading, **{name: served for name, served in ready.items() if served}}
            self.reachable = True

    async def _renew(self, versions: dict[str, int]) -> None:
        """A slow object store must not hold up the canaries: it is waited for a moment only, and goes on reading."""
        if self._remote is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.to_thread(self._remote.renew, versions), _WAIT_FOR_STORE_S)

    async def send_canaries(self) -> None:
        """Ask every model one question. A model that is busy with other requests is not silent."""
        silent = {}
        for served in self.models:
            began = time.monotonic()
            try:
                if not await self._client.ask(served.name, canary):
                    silent[served.name] = "its numbers are not finite, or all zero"
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
        if model.task not in TASKS:
            return None
        folder = self._folder(name, version)
        try:
            vocabulary = await asyncio.to_thread(Vocabulary, folder)
            created = int(tokenizer_file(folder).stat().st_mtime)
        except (OSError, ValueError, KeyError, TypeError, TrimaranError) as error:
            if (name, version) not in self._not_offered:
                log.warning(
                    "Model %s is not offered: its tokenizer in %s cannot be read (%s). Is this the repository that "
                    "Triton serves?",
                    name,
                    folder,
                    error,
                )
            self._not_offered.add((name, version))
            return None
        unproven = model.parameters.get(PROOF) == UNPROVEN
        counts_tokens = set(COUNTS) <= model.outputs.keys()
        width = (0, *model.outputs.get("TOKEN_EMBEDDINGS", ()))[-1]
        return ServedModel(
            name, model.task, version, created, model.max_batch_size, vocabulary, unproven, counts_tokens, max(0, width)
        )

    def _folder(self, name: str, version: int) -> Path:
        """The folder of the version, or of the newest version here.

        Servers may have a version before it reaches the gateway's repository. Its tokenizer serves for counting then.
        """
        model = self._repository / name
        versions = versions_of(model)
        if version not in versions and versions:
            log.warning(
                "%s has no version %d of %s. The tokenizer of %d counts.", model.parent, version, name, versions[-1]
            )
            version = versions[-1]
        return model / str(version)

    async def _refresh_if_old(self) -> None:
        """A model may have come, or come back, a moment ago. But names that do not exist must not cause work."""
        if time.monotonic() - self._refreshed_at >= _REFRESH_AT_MOST_EVERY_S:
            await self.refresh()

    def _absent(self, present: set[str]) -> set[str]:
        """The other models of the repository, without those that wait until somebody loads them."""
        absent = {folder.name for folder in model_folders(self._repository)} - present
        if absent - self._known.keys() - self._on_demand.keys():
            self._on_demand = {model.name: model.on_demand for model in models_in(self._repository)}
        return {name for name in absent if name in self._known or not self._on_demand.get(name)}
