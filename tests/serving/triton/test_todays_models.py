"""Models that people deploy today, tiny, in one real Triton: each answers as sentence-transformers does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.export import zoo
from tests.export.exported import LONG, exported
from tests.export.test_bad_input import edit_config
from tests.export.test_decoders import CAUSAL, TEXTS, _theirs
from tests.export.test_embedding import sentence_model
from trimaran.export.locate import locate
from trimaran.model_repository.layout import lay_out
from trimaran.serving.client import Client
from trimaran.serving.triton.server import launch

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]
NAMES = ("qwen3", "gemma3", "gte", "eurobert")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("today")
    qwen3 = zoo.saved_model(root / "qwen3", "qwen3", "embedding")
    edit_config(qwen3, **CAUSAL)
    sentence_model(root / "gemma3", "gemma3_text", dense=True, use_bidirectional_attention=True)
    others = {family: zoo.saved_model(root / family, family, "embedding") for family in ("gte", "eurobert")}
    return {"qwen3": qwen3, "gemma3": root / "gemma3" / "sentence", **others}


@pytest.fixture(scope="module")
def client(folders: dict[str, Path], triton: None) -> Iterator[Client]:
    repository = folders["qwen3"].parent / "repository"
    for name, folder in folders.items():
        graph = exported(locate(str(folder)), repository.parent / f"{name}-store", profile=LONG)
        lay_out(graph, repository=repository, name=name, rows="padded", threads=1)
    with launch(repository, drain=False) as server, Client(server.grpc_url) as connected:
        yield connected


@pytest.mark.parametrize("name", NAMES)
def test_served_vectors_are_the_librarys(client: Client, folders: dict[str, Path], name: str) -> None:
    plain = not (folders[name] / "modules.json").is_file()
    wanted = _theirs(folders[name], normalize_embeddings=plain)
    np.testing.assert_allclose(client.embed(name, TEXTS), wanted, atol=1e-5)
    assert client.truncated_texts >= 1
