"""A caller chooses a prompt by name, over the wire, through the gateway and on the command line."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests.commands import trimaran_here, trimaran_json_here
from tests.homes import home_at
from tests.model_repository.worlds import changed
from tests.serving.gateway.worlds import Running, gateway
from tests.serving.worlds import by_hand
from tests.tiny import tiny_artifact
from trimaran.core.errors import RequestFailed, UsageError
from trimaran.core.tasks import gates_for
from trimaran.judging.final_answers import final_answers
from trimaran.judging.golden import golden_rows, make_golden
from trimaran.model_repository.layout import lay_out
from trimaran.serving.client import AsyncClient, Client
from trimaran.serving.triton.server import Server, launch
from trimaran.serving.triton.verify import ask, verify

PROMPTS = {"query": "the good ", "document": "", "bad": "bad "}
TEXTS = ["cat", "dog ran", "the cat sat"]


@dataclass(frozen=True)
class World:
    server: Server
    gateway: Running


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, triton: None) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("prompts")
    plain = tiny_artifact(folder / "s")
    spec = {**plain.tokenizer.model_dump(), "prompts": PROMPTS, "default_prompt": "query"}
    artifact = changed(plain, folder / "s", tokenizer=spec)
    rows = golden_rows("embedding", TEXTS * 4, {}, prompts=tuple(PROMPTS))
    with home_at(folder / "home"):
        wanted = final_answers(artifact, rows, threads=1)
        golden = make_golden(
            task="embedding",
            model="tiny",
            reference=artifact.digest,
            numbers="embedding",
            rows=rows,
            wanted=wanted,
            proven=wanted,
            gates=gates_for("embedding", "strict", {}),
        )
        repository = folder / "repository"
        lay_out(artifact, repository=repository, name="asks", rows="equal-length", threads=1, golden=golden)
        lay_out(plain, repository=repository, name="plain", rows="equal-length", threads=1)
        with (
            launch(repository, drain=False) as server,
            gateway(repository, server.grpc_url, folder / "gateway") as started,
        ):
            found = verify(Client(server.grpc_url), "asks", golden)
            assert found.holds and found.rows == len(rows)
            yield World(server, started)


def read_with(prompt: str | None) -> np.ndarray:
    words = PROMPTS["query" if prompt is None else prompt]
    return by_hand([words + text for text in TEXTS])


@pytest.mark.parametrize("prompt", [None, *PROMPTS])
def test_clients_and_gateway_give_the_vectors_of_the_prompt(world: World, prompt: str | None) -> None:
    async def asynchronously() -> np.ndarray:
        async with AsyncClient(world.server.grpc_url) as client:
            return await client.embed("asks", TEXTS, prompt=prompt)

    with Client(world.server.grpc_url) as client:
        np.testing.assert_allclose(client.embed("asks", TEXTS, prompt=prompt), read_with(prompt), atol=1e-6)
    np.testing.assert_allclose(asyncio.run(asynchronously()), read_with(prompt), atol=1e-6)
    named = {} if prompt is None else {"prompt_name": prompt}
    answer = world.gateway.ask("/v1/embeddings", {"model": "asks", "input": TEXTS, **named})
    assert answer.status == 200, answer.body
    vectors = np.asarray([item["embedding"] for item in answer.json["data"]])
    np.testing.assert_allclose(vectors, read_with(prompt), atol=1e-6)
    words = PROMPTS["query" if prompt is None else prompt].split()
    specials = 2
    assert answer.json["usage"]["prompt_tokens"] == sum(len(words) + len(text.split()) + specials for text in TEXTS)


def test_callers_with_different_prompts_do_not_disturb_each_other(world: World) -> None:
    rows = [{"TEXT": "cat", "OPTIONS": '{"prompt": "bad"}'}, {"TEXT": "cat", "OPTIONS": ""}]
    with Client(world.server.grpc_url) as client:
        found = ask(client, "asks", rows, outputs=["EMBEDDING"])["EMBEDDING"]
    np.testing.assert_allclose(found, by_hand(["bad cat", "the good cat"]), atol=1e-6)


def test_an_unknown_prompt_is_refused_with_the_names(world: World) -> None:
    with Client(world.server.grpc_url) as client:
        with pytest.raises(UsageError, match=r"has no prompt 'quary'\. Known: query, document, bad."):
            client.embed("asks", TEXTS, prompt="quary")
        with pytest.raises(UsageError, match=r"has no prompt 'query'\. It has no prompts at all"):
            client.embed("plain", TEXTS, prompt="query")
        rows = [{"TEXT": "cat", "OPTIONS": '{"prompt": "quary"}'}]
        with pytest.raises(RequestFailed, match=r"Unknown prompt 'quary'\. Known: query, document, bad."):
            ask(client, "asks", rows, outputs=["EMBEDDING"])
    refused = world.gateway.ask("/v1/embeddings", {"model": "asks", "input": TEXTS, "prompt_name": "quary"})
    assert (refused.status, refused.json["error"]["param"]) == (400, "prompt_name")
    assert refused.json["error"]["message"] == "This model has no prompt 'quary'. Known: query, document, bad."
    without = world.gateway.ask("/v1/embeddings", {"model": "plain", "input": TEXTS, "prompt_name": "query"})
    assert (without.status, without.json["error"]["code"]) == (400, "unknown_prompt")


def test_query_takes_a_prompt(world: World, tmp_path: Path) -> None:
    where = ("--url", world.server.grpc_url)
    said = trimaran_json_here("query", "asks", *TEXTS, *where, "--prompt", "bad", home=tmp_path / "home")
    np.testing.assert_allclose(np.asarray(said["answers"]), read_with("bad"), atol=1e-6)
    refused = trimaran_here("query", "asks", "cat", *where, "--prompt", "quary", home=tmp_path / "home")
    assert refused.returncode == 2
    assert "Known: query, document, bad." in refused.stderr
