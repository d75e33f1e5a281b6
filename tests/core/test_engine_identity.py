from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tiny import tiny_artifact
from trimaran.core.artifact import Artifact
from trimaran.core.engine_identity import EngineIdentity, machine_identity, refuse_foreign
from trimaran.core.errors import IntegrityError

BUILT = EngineIdentity(
    runtime="tensorrt",
    version="11.4.0.106",
    compute_capabilities=("8.6",),
    gpu="NVIDIA A10",
    cuda="13.2",
    driver="595.71.05",
    oldest_driver="580.65.06",
)


@pytest.fixture
def artifact(tmp_path: Path) -> Artifact:
    return tiny_artifact(tmp_path)


def opened(artifact: Artifact, built: EngineIdentity, here: EngineIdentity) -> None:
    identified = artifact.model_copy(update={"engine_options": {"identity": built.model_dump(mode="json")}})
    refuse_foreign(identified.at(artifact.directory), here)


def test_an_engine_opens_on_its_own_machine(artifact: Artifact) -> None:
    opened(artifact, BUILT, BUILT)
    opened(artifact, BUILT, BUILT.model_copy(update={"driver": "600.10", "cuda": "13.4"}))
    # An image's newer driver library over an older driver.
    opened(artifact, BUILT, BUILT.model_copy(update={"driver": "570.10", "cuda": "13.4"}))
    # The wheel's number and the library's.
    opened(artifact, BUILT, BUILT.model_copy(update={"version": "11.4.0.106.post1"}))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"compute_capabilities": ("8.9",), "gpu": "NVIDIA L4"},
            r"compute capability 8\.6, here is 8\.9.*on NVIDIA A10",
        ),
        ({"gpu": "NVIDIA GeForce RTX 3090"}, "built on NVIDIA A10, here is NVIDIA GeForce RTX 3090"),
        ({"version": "11.3.0.99"}, r"with TensorRT 11\.4\.0\.106, here is 11\.3\.0\.99"),
        ({"driver": "570.10", "cuda": "12.8"}, r"needs the driver 580\.65\.06 or newer, here is 570\.10"),
        ({"compute_capabilities": (), "gpu": None, "cuda": None}, "here is no GPU"),
    ],
    ids=["gpu", "gpu model", "tensorrt", "driver", "no gpu"],
)
def test_an_engine_of_another_machine_is_refused(artifact: Artifact, change: dict[str, Any], words: str) -> None:
    with pytest.raises(IntegrityError, match=words) as caught:
        opened(artifact, BUILT, BUILT.model_copy(update=change))
    assert "trimaran build-engine" in caught.value.hint
    assert caught.value.facts["wanted"]["gpu"] == "NVIDIA A10"


def test_compatible_modes_open_where_they_promise_to(artifact: Artifact) -> None:
    hopper = BUILT.model_copy(update={"compute_capabilities": ("9.0",), "gpu": "NVIDIA H100"})
    opened(artifact, BUILT.model_copy(update={"hardware_compatible": "AMPERE_PLUS"}), hopper)
    turing = BUILT.model_copy(update={"compute_capabilities": ("7.5",), "gpu": "NVIDIA T4"})
    with pytest.raises(IntegrityError):
        opened(artifact, BUILT.model_copy(update={"hardware_compatible": "AMPERE_PLUS"}), turing)
    sibling = BUILT.model_copy(update={"gpu": "NVIDIA A40"})
    opened(artifact, BUILT.model_copy(update={"hardware_compatible": "SAME_COMPUTE_CAPABILITY"}), sibling)


def test_an_rtx_engine_opens_on_each_capability_that_it_names(artifact: Artifact) -> None:
    built = EngineIdentity(runtime="tensorrt_rtx", version="1.7.1.116", compute_capabilities=("8.6", "12.0"))
    here = BUILT.model_copy(update={"runtime": "tensorrt_rtx", "version": "1.7.1.116"})
    opened(artifact, built, here)
    with pytest.raises(IntegrityError, match=r"8\.6, 12\.0, here is 8\.9"):
        opened(artifact, built, here.model_copy(update={"compute_capabilities": ("8.9",)}))


def test_an_engine_without_identity_is_refused(artifact: Artifact) -> None:
    with pytest.raises(IntegrityError, match="does not say for which machine"):
        refuse_foreign(artifact)


def test_this_machine_is_described_without_touching_tensorrt() -> None:
    found = machine_identity("tensorrt_rtx")
    assert found.runtime == "tensorrt_rtx" and found.version


def test_a_manifest_of_before_is_still_read() -> None:
    old = {**BUILT.model_dump(mode="json"), "version_compatible": False}
    assert EngineIdentity.model_validate(old) == BUILT
