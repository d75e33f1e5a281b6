"""Which model a request gets: 404 only for a model that does not exist, 503 while one is loading or Triton is away."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tiny import tiny_serving, tiny_tokenizer
from trimaran.core.errors import NotReady, Overloaded, TimedOut, TrimaranError
from trimaran.serving.client import Model
from trimaran.serving.client.question import Ask
from trimaran.serving.gateway import catalogue
from trimaran.serving.gateway.catalogue import Catalogue
from trimaran.serving.gateway.refusals import Refusal


class FakeTriton:
    """As much of an AsyncClient as the catalogue asks. `ready` holds the models with their versions."""

    def __init__(self, **ready: int) -> None:
        self.ready = ready
        self.away = False
        self.asked = 0
        self.answer: np.ndarray | TrimaranError = np.ones((1, 2), np.float32)

    def using(self, **options: Any) -> FakeTriton:
        return self

    def forget(self) -> None:
        pass

    async def versions(self) -> dict[str, int]:
        self.asked += 1
        if self.away:
            raise NotReady("No Triton answers.")
        return dict(self.ready)

    async def model(self, name: str) -> Model:
        task = "embedding" if name.startswith("vectors") else "fill-mask"
        return Model(name, task, 4, frozenset(), {"EMBEDDING": (2,)}, {})

    async def ask(self, name: str, build: Callable[[Model], Ask[Any]]) -> Any:
        if isinstance(self.answer, TrimaranError):
            raise self.answer
        ask = build(await self.model(name))
        assert [set(request) for request in ask.requests] == [{"TEXT"}] and ask.outputs == ("EMBEDDING",)
        return ask.join([{"EMBEDDING": self.answer}])


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for name in ("vectors", "vectors-2"):
        version = tmp_path / name / "1"
        version.mkdir(parents=True)
        tiny_tokenizer(version / "tokenizer.json")
        tiny_serving(version)
        (version.parent / "config.pbtxt").write_text("")
    return tmp_path


def of(triton: FakeTriton, repository: Path) -> Catalogue:
    return Catalogue(triton, repository, timeout_s=5)  # type: ignore[arg-type]


async def status_of(models: Catalogue, name: str | None) -> int:
    """200, or the status of the refusal."""
    try:
        await models.pick(name, ("embedding",))
    except Refusal as refusal:
        if refusal.status == 503:
            assert refusal.retry_after_s is not None and refusal.retry_after_s > 0
        return refusal.status
    return 200


@pytest.mark.parametrize("name", ["vectors", None])
def test_a_model_that_is_loaded_again_is_not_ready_and_never_unknown(repository: Path, name: str | None) -> None:
    async def scenario() -> list[int]:
        triton = FakeTriton(vectors=1)
        models = of(triton, repository)
        await models.refresh()
        statuses = [await status_of(models, name)]
        triton.ready = {}
        await models.refresh()
        assert models.models == () and not models.ready
        statuses.append(await status_of(models, name))
        triton.ready = {"vectors": 1}
        await models.refresh()
        return [*statuses, await status_of(models, name)]

    assert asyncio.run(scenario()) == [200, 503, 200]


def test_the_neighbour_of_a_loading_model_does_not_answer_for_it(repository: Path) -> None:
    async def scenario() -> None:
        triton = FakeTriton(vectors=1, **{"vectors-2": 1})
        models = of(triton, repository)
        await models.refresh()
        triton.ready = {"vectors-2": 1}
        await models.refresh()
        assert await status_of(models, None) == 422, "there are still two models to choose from"
        assert await status_of(models, "vectors") == 503
        assert await status_of(models, "vectors-2") == 200

    asyncio.run(scenario())


def test_a_model_of_another_repository_is_told_once(repository: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def refreshed_twice() -> list[str]:
        models = of(FakeTriton(vectors=1, vectors_elsewhere=1), repository)
        await models.refresh()
        await models.refresh()
        return [served.name for served in models.models]

    assert asyncio.run(refreshed_twice()) == ["vectors"]
    (said,) = caplog.messages
    assert "Model vectors_elsewhere is not offered" in said and "Is this the repository that Triton serves?" in said


def test_a_model_that_was_removed_is_unknown(repository: Path) -> None:
    async def scenario() -> None:
        triton = FakeTriton(vectors=1)
        models = of(triton, repository)
        await models.refresh()
        triton.ready = {}
        (repository / "vectors" / "config.pbtxt").unlink()
        await models.refresh()
        assert await status_of(models, "vectors") == 404

    asyncio.run(scenario())


@pytest.mark.parametrize("name", ["vectors", None])
def test_a_model_that_was_never_ready_is_not_unknown_but_one_that_waits_to_be_loaded_is(
    repository: Path, name: str | None
) -> None:
    async def scenario() -> list[int]:
        triton = FakeTriton()
        models = of(triton, repository)
        await models.refresh()
        statuses = [await status_of(models, name)]
        for folder in ("vectors", "vectors-2"):
            (repository / folder / "config.pbtxt").write_text(
                'backend: "onnxruntime" parameters { key: "load" value { string_value: "on demand" } }'
            )
        models = of(triton, repository)
        await models.refresh()
        return [*statuses, await status_of(models, name)]

    assert asyncio.run(scenario()) == [503, 404]


@pytest.mark.parametrize("name", ["vectors", "nowhere", None])
def test_before_triton_answers_nothing_is_unknown(repository: Path, name: str | None) -> None:
    async def scenario() -> None:
        triton = FakeTriton(vectors=1)
        triton.away = True
        models = of(triton, repository)
        with pytest.raises(NotReady):
            await models.refresh()
        assert await status_of(models, name) == 503

    asyncio.run(scenario())


def test_a_model_that_is_back_is_found_by_the_next_request(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "_REFRESH_AT_MOST_EVERY_S", 0.0)

    async def scenario() -> list[int]:
        triton = FakeTriton(vectors=1)
        models = of(triton, repository)
        await models.refresh()
        triton.ready = {}
        await models.refresh()
        statuses = [await status_of(models, "vectors")]
        triton.ready = {"vectors": 1}
        return [*statuses, await status_of(models, "vectors")]

    assert asyncio.run(scenario()) == [503, 200]


def test_names_that_do_not_exist_cause_no_work(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "_REFRESH_AT_MOST_EVERY_S", 1e9)

    async def scenario() -> None:
        triton = FakeTriton(vectors=1)
        models = of(triton, repository)
        for _ in range(5):
            assert await status_of(models, "nowhere") == 404
        assert triton.asked == 1

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("answer", "ready"),
    [
        (np.ones((1, 2), np.float32), True),
        (np.zeros((1, 2), np.float32), False),
        (np.array([[1, np.nan]], np.float32), False),
        (TimedOut("late"), False),
        (Overloaded("busy"), True),
    ],
    ids=["good", "zero", "nan", "late", "busy"],
)
def test_a_model_is_ready_when_its_canary_makes_sense(repository: Path, answer: Any, ready: bool) -> None:
    async def scenario() -> None:
        triton = FakeTriton(vectors=1)
        triton.answer = answer
        models = of(triton, repository)
        await models.refresh()
        await models.send_canaries()
        assert models.ready == ready

    asyncio.run(scenario())


def test_a_late_canary_counts_for_nothing_while_callers_are_answered(repository: Path) -> None:
    async def scenario() -> None:
        triton = FakeTriton(vectors=1)
        models = of(triton, repository)
        await models.refresh()

        async def late(name: str, build: Callable[[Model], Ask[Any]]) -> Any:
            models.note_answer(name)
            raise TimedOut("late")

        triton.ask = late  # type: ignore[method-assign]
        await models.send_canaries()
        assert models.ready

    asyncio.run(scenario())


class FakeRemote:
    """An object store that has the tokenizers only after it was asked; it may take long."""

    def __init__(self, repository: Path, takes_s: float = 0.0) -> None:
        self.repository, self.takes_s = repository, takes_s
        self.asked: list[dict[str, int]] = []

    def renew(self, versions: dict[str, int]) -> None:
        self.asked.append(versions)
        time.sleep(self.takes_s)
        version = self.repository / "vectors" / "1"
        version.mkdir(parents=True, exist_ok=True)
        tiny_tokenizer(version / "tokenizer.json")
        tiny_serving(version)


def test_a_repository_in_an_object_store_is_renewed_before_models_are_offered(tmp_path: Path) -> None:
    remote = FakeRemote(tmp_path)
    models = Catalogue(FakeTriton(vectors=1), tmp_path, timeout_s=5, remote=remote)  # type: ignore[arg-type]
    asyncio.run(models.refresh())
    assert [served.name for served in models.models] == ["vectors"] and remote.asked == [{"vectors": 1}]


def test_a_slow_object_store_does_not_hold_up_the_canaries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "_WAIT_FOR_STORE_S", 0.01)

    async def look_twice(models: Catalogue, remote: FakeRemote) -> tuple[bool, int]:
        await models.refresh()
        early = bool(models.models)
        remote.takes_s = 0.0
        monkeypatch.setattr(catalogue, "_WAIT_FOR_STORE_S", 30.0)
        await models.refresh()
        return early, len(models.models)

    remote = FakeRemote(tmp_path, takes_s=0.5)
    models = Catalogue(FakeTriton(vectors=1), tmp_path, timeout_s=5, remote=remote)  # type: ignore[arg-type]
    assert asyncio.run(look_twice(models, remote)) == (False, 1)
