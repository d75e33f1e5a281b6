"""A ColBERT-style model on the real Triton: token vectors and scores are those of sentence-transformers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.export.exported import LONG, exported
from tests.export.late_interaction import library, saved_late
from tests.homes import home_at
from tests.serving.gateway.worlds import Running, gateway
from trimaran import Client
from trimaran.core.errors import RequestFailed, UsageError
from trimaran.export.locate import locate
from trimaran.model_repository.layout import lay_out
from trimaran.serving.triton.server import Server, launch

QUERY = "What floats?"
DOCUMENTS = ["A stone, sinks.", "天气 is fine! 🍕", "", "a boat " * 90]


class Late(NamedTuple):
    server: Server
    gateway: Running
    library: Any


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory, triton: None) -> Iterator[Late]:
    root: Path = tmp_path_factory.mktemp("late")
    folder = saved_late(root / "colbert", normalize=False, similarity="meanmaxsim")
    artifact = exported(locate(str(folder)), root, profile=LONG)
    lay_out(artifact, repository=root / "repository", name="colbert", rows="padded", threads=1)
    with home_at(root / "home"):
        with (
            launch(root / "repository", drain=False) as server,
            gateway(root / "repository", server.grpc_url, root / "gateway") as running,
        ):
            yield Late(server, running, library(folder))


def test_token_vectors_are_those_of_the_library_by_side(late: Late) -> None:
    wanted = {"query": late.library.encode_query(DOCUMENTS), "document": late.library.encode_document(DOCUMENTS)}
    with Client(late.server.grpc_url) as client:
        for prompt, rows in wanted.items():
            for mine, theirs in zip(client.tokens("colbert", DOCUMENTS, prompt=prompt), rows, strict=True):
                np.testing.assert_allclose(mine.vectors, theirs, atol=1e-5)
                assert len(mine.tokens) == len(theirs)
        unasked = client.tokens("colbert", DOCUMENTS[0])
        np.testing.assert_allclose(unasked.vectors, wanted["document"][0], atol=1e-5)


def test_scores_are_those_of_the_library_at_client_and_gateway(late: Late) -> None:
    model = late.library
    wanted = model.similarity(model.encode_query([QUERY]), model.encode_document(DOCUMENTS))[0].numpy()
    with Client(late.server.grpc_url) as client:
        np.testing.assert_allclose(client.score("colbert", QUERY, DOCUMENTS), wanted, rtol=1e-5)
        assert client.score("colbert", QUERY, []) == []
    answered = late.gateway.ask("/score", {"query": QUERY, "documents": DOCUMENTS})
    np.testing.assert_allclose(answered.json["results"], wanted, rtol=1e-5)


def test_a_pair_and_an_unknown_side_are_refused_with_a_sentence(late: Late) -> None:
    with Client(late.server.grpc_url) as client:
        with pytest.raises(RequestFailed, match="single texts, queries and documents, and no pairs"):
            client.tokens("colbert", [("a", "b")])
        with pytest.raises(UsageError, match="passage"):
            client.tokens("colbert", ["a"], prompt="passage")
