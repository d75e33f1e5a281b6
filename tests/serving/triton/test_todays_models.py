"""Models that people deploy today, tiny, in one real Triton: each answers as sentence-transformers does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.export import zoo
from tests.export.exported import LONG, exported
from tests.export.test_bad_input import edit_config
from tests.export.test_decoders import CAUSAL, TEXTS, _theirs
from tests.export.test_embedding import sentence_model
from tests.export.test_rerankers import DOCUMENTS, QUERY, WIDE, _cross_encoder, _generator
from tests.export.test_static import _folder as static_folder
from tests.serving.gateway.worlds import Running, gateway
from trimaran.core.artifact import Artifact
from trimaran.core.small_vectors import RANGES, VectorPrecision, ranges_from_text
from trimaran.export.locate import locate
from trimaran.model_repository.layout import lay_out
from trimaran.serving.client import Client
from trimaran.serving.triton.server import Server, launch

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]
NAMES = ("qwen3", "gemma3", "gte", "eurobert", "static")
RERANKER = "reranker"
INSTRUCTION = "Find a harbour"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("today")
    qwen3 = zoo.saved_model(root / "qwen3", "qwen3", "embedding")
    edit_config(qwen3, **CAUSAL)
    sentence_model(root / "gemma3", "gemma3_text", dense=True, use_bidirectional_attention=True)
    others = {family: zoo.saved_model(root / family, family, "embedding") for family in ("gte", "eurobert")}
    static = static_folder(root / "static", "sentence-transformers")
    reranker = _generator(root / RERANKER)
    return {"qwen3": qwen3, "gemma3": root / "gemma3" / "sentence", **others, "static": static, RERANKER: reranker}


@pytest.fixture(scope="module")
def graphs(folders: dict[str, Path]) -> dict[str, Artifact]:
    root = folders["qwen3"].parent
    embedders = {name: exported(locate(str(folders[name])), root / f"{name}-store", profile=LONG) for name in NAMES}
    ref = locate(str(folders[RERANKER]), task_name="rerank")
    return {**embedders, RERANKER: exported(ref, root / "reranker-store", profile=WIDE)}


@pytest.fixture(scope="module")
def server(folders: dict[str, Path], graphs: dict[str, Artifact], triton: None) -> Iterator[Server]:
    repository = folders["qwen3"].parent / "repository"
    for name, graph in graphs.items():
        lay_out(graph, repository=repository, name=name, rows="padded", threads=1)
    with launch(repository, drain=False) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[Client]:
    with Client(server.grpc_url) as connected:
        yield connected


@pytest.fixture(scope="module")
def running(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with gateway(server.repository, server.grpc_url, tmp_path_factory.mktemp("gateway")) as started:
        yield started


def _wanted(folder: Path) -> Any:
    if not (folder / "config.json").is_file():
        from sentence_transformers import SentenceTransformer

        table = SentenceTransformer(str(folder), device="cpu")
        # The library reads every token of a text. It was deployed for texts of so many.
        table.tokenizer.enable_truncation(LONG.sequence.maximum)
        return table.encode(TEXTS)
    return _theirs(folder, normalize_embeddings=not (folder / "modules.json").is_file())


@pytest.mark.parametrize("name", NAMES)
def test_served_vectors_are_the_librarys(client: Client, folders: dict[str, Path], name: str) -> None:
    np.testing.assert_allclose(client.embed(name, TEXTS), _wanted(folders[name]), atol=1e-5)
    assert client.truncated_texts >= 1


@pytest.mark.parametrize("instruction", [None, INSTRUCTION])
def test_a_served_reranker_takes_an_instruction_and_scores_as_the_library(
    client: Client, running: Running, folders: dict[str, Path], instruction: str | None
) -> None:
    """By client and gateway: other words give other scores, a too long document still sees the template's end."""
    wanted = _cross_encoder(folders[RERANKER]).rank(QUERY, DOCUMENTS, prompt=instruction)
    scores = pytest.approx([row["score"] for row in wanted], abs=1e-5)
    ranking = client.rerank(RERANKER, QUERY, DOCUMENTS, instruction=instruction)
    assert [index for index, _ in ranking] == [row["corpus_id"] for row in wanted]
    assert [score for _, score in ranking] == scores
    body = {"model": RERANKER, "query": QUERY, "documents": DOCUMENTS, "instruction": instruction}
    found = running.ask("/rerank", body).json["results"]
    assert [row["relevance_score"] for row in found] == scores


def test_instructions_change_what_a_reranker_answers(client: Client) -> None:
    plain, asked = (dict(client.rerank(RERANKER, QUERY, DOCUMENTS, instruction=words)) for words in (None, INSTRUCTION))
    assert max(abs(plain[index] - asked[index]) for index in plain) > 1e-4


@pytest.mark.parametrize("precision", ["int8", "uint8", "binary", "ubinary"])
@pytest.mark.parametrize("dimensions", [None, 16])
def test_small_vectors_are_those_of_the_library_in_client_and_gateway(
    client: Client, running: Running, graphs: dict[str, Artifact], precision: VectorPrecision, dimensions: int | None
) -> None:
    from sentence_transformers.util import quantize_embeddings

    texts = TEXTS[:5]
    ranges = ranges_from_text(graphs["qwen3"].details[RANGES])[:, :dimensions]
    wanted = quantize_embeddings(client.embed("qwen3", texts)[:, :dimensions], precision=precision, ranges=ranges)
    found = client.embed("qwen3", texts, precision=precision, dimensions=dimensions)
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)
    body = {"model": "qwen3", "input": texts, "output_dtype": precision, "dimensions": dimensions}
    rows = running.ask("/v1/embeddings", body).json["data"]
    np.testing.assert_array_equal([row["embedding"] for row in rows], wanted)


def test_a_too_long_text_is_joined_of_pieces_by_the_client(client: Client) -> None:
    long, cut_before = " ".join(f"boat{number}" for number in range(100)), client.truncated_texts
    mean, largest = (client.embed("qwen3", [long], overflow=how)[0] for how in ("windows", "windows-max"))
    assert client.truncated_texts == cut_before
    assert [np.linalg.norm(vector) for vector in (mean, largest)] == pytest.approx([1, 1], abs=1e-5)
    cut = client.embed("qwen3", [long])[0]
    assert client.truncated_texts == cut_before + 1
    assert min(np.abs(mean - cut).max(), np.abs(mean - largest).max()) > 1e-3
