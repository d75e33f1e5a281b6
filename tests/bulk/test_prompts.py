"""A bulk run reads its texts with the model's default prompt, or with one that is chosen by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.bulk.worlds import run, vectors, written
from tests.commands import trimaran, trimaran_json
from tests.model_repository.worlds import changed
from tests.serving.worlds import by_hand
from tests.tiny import tiny_artifact
from trimaran.bulk.worker import EncodeOptions
from trimaran.core.artifact import Artifact
from trimaran.core.errors import UsageError

PROMPTS = {"query": "the good ", "document": "", "bad": "bad "}
TEXTS = ["cat", "dog ran", "the cat sat"]


@pytest.fixture
def prompted(tmp_path: Path) -> Artifact:
    plain = tiny_artifact(tmp_path / "s")
    spec = {**plain.tokenizer.model_dump(), "prompts": PROMPTS, "default_prompt": "query"}
    return changed(plain, tmp_path / "s", tokenizer=spec)


@pytest.mark.parametrize("prompt", [None, *PROMPTS])
def test_vectors_are_those_of_the_prompt(prompted: Artifact, tmp_path: Path, prompt: str | None) -> None:
    how = EncodeOptions(rows="padded", ask={} if prompt is None else {"prompt": prompt})
    run(prompted, [written(tmp_path / "texts.txt", TEXTS)], tmp_path / "out", how=how)
    words = PROMPTS["query" if prompt is None else prompt]
    np.testing.assert_allclose(vectors(tmp_path / "out"), by_hand([words + text for text in TEXTS]), atol=1e-6)


def test_an_unknown_prompt_is_refused_with_the_names(prompted: Artifact, artifact: Artifact, tmp_path: Path) -> None:
    source = written(tmp_path / "texts.txt", TEXTS)
    with pytest.raises(UsageError, match=r"has no prompt 'quary'\. Known: query, document, bad."):
        run(prompted, [source], tmp_path / "out", how=EncodeOptions(ask={"prompt": "quary"}))
    with pytest.raises(UsageError, match=r"has no prompt 'query'\. It has no prompts at all"):
        run(artifact, [source], tmp_path / "out", how=EncodeOptions(ask={"prompt": "query"}))


def test_the_command_takes_a_prompt(prompted: Artifact, tmp_path: Path) -> None:
    source = written(tmp_path / "texts.txt", TEXTS)
    command = (
        "encode",
        prompted.directory,
        "--input",
        source,
        "--output",
        tmp_path / "out",
        "--store",
        tmp_path / "s",
    )
    printed = trimaran_json(*command, "--prompt", "bad", home=tmp_path / "home")
    assert printed["settings"]["how"]["ask"] == {"prompt": "bad"}
    np.testing.assert_allclose(vectors(tmp_path / "out"), by_hand(["bad " + text for text in TEXTS]), atol=1e-6)
    # Vectors of another prompt do not belong into the same folder.
    other = trimaran(*command, "--prompt", "query", "--resume", home=tmp_path / "home")
    assert other.returncode != 0
