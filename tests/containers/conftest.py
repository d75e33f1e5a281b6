"""A network of containers, and a repository with a model whose answers are known by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.benchmarks.scripts import scripts_in
from tests.serving.worlds import TEXTS, by_hand
from tests.tiny import tiny_artifact
from trimaran.core.tasks import Gate
from trimaran.judging.golden import make_golden
from trimaran.model_repository.layout import lay_out

ROOT = Path(__file__).parents[2]
with scripts_in(ROOT / "benchmarks", ("pods",)) as scripts:
    pods = scripts.pods
LIMITS = (Gate("mean_cosine_distance", "<=", 1e-6), Gate("batch_change", "<=", 1e-5))


@pytest.fixture(scope="session")
def images() -> None:
    if reason := pods.why_not():
        pytest.skip(reason)


@pytest.fixture(scope="session")
def repository(images: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Readable for user 1000, with every folder above it."""
    folder = tmp_path_factory.mktemp("containers")
    rows = [{"TEXT": text} for text in TEXTS]
    answers = {"EMBEDDING": by_hand(TEXTS)}
    golden = make_golden(
        task="embedding", model="m", reference="", numbers="embedding", rows=rows, wanted=answers, proven=answers,
        gates=LIMITS,
    )  # fmt: skip
    artifact = tiny_artifact(folder / "s")
    lay_out(artifact, repository=folder / "r", name="m", rows="equal-length", threads=1, golden=golden)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    for parent in folder.parents[:3]:
        parent.chmod(0o755)
    return folder / "r"


@pytest.fixture
def network(images: None) -> Iterator[object]:
    with pods.bridge() as bridge:
        yield bridge
