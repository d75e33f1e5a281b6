"""A version whose files are not as they were published is refused, and the other models are served."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import trimaran
from tests.homes import home_at
from tests.serving.gateway.test_catalogue import FakeTriton
from tests.serving.worlds import TEXTS, by_hand
from tests.tiny import tiny_artifact
from trimaran.core.config_pbtxt import read_config
from trimaran.core.digests import list_digests, require_undamaged
from trimaran.core.errors import IntegrityError
from trimaran.core.store import Store
from trimaran.judging.golden import GOLDEN_FILE, make_golden
from trimaran.model_repository.check import problems
from trimaran.model_repository.layout import lay_out
from trimaran.pipeline.api import load
from trimaran.pipeline.artifact_lookup import find_artifact
from trimaran.serving.client import Client, Model
from trimaran.serving.gateway.catalogue import Catalogue
from trimaran.serving.triton.server import launch
from trimaran.serving.triton.undamaged import damaged, require_loadable


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two models, `good` and `bad`, of which nothing is damaged yet. Their weights share no copy."""
    answers = {"EMBEDDING": by_hand(TEXTS)}
    golden = make_golden(
        task="embedding", model="m", reference="", numbers="embedding", rows=[{"TEXT": text} for text in TEXTS],
        wanted=answers, proven=answers, gates=(),
    )  # fmt: skip
    for name in ("good", "bad"):
        artifact = tiny_artifact(tmp_path / name)
        lay_out(artifact, repository=tmp_path / "r", name=name, rows="padded", threads=1, golden=golden)
    return tmp_path / "r"


def flip(path: Path) -> None:
    """A few bytes, every now and then, as a bad disk or cable does; through the hard link, into the store too."""
    data = bytearray(path.read_bytes())
    for index in range(len(data) // 2, len(data), 200):
        data[index] ^= 255
    path.write_bytes(data)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "flipped weights": lambda version: flip(version / "model.onnx"),
    "an edited stage": lambda version: (version / "model.py").write_text("raise SystemExit"),
    "an edited neighbour": lambda version: (version / "tasks" / "embedding.py").write_text(""),
    "edited settings": lambda version: (version / "serving.json").write_text("{}"),
    "an edited configuration": lambda version: (version / "config.pbtxt").write_text(""),
    "no manifest": lambda version: (version / "manifest.json").unlink(),
    "no golden bundle": lambda version: (version / GOLDEN_FILE).unlink(),
    "no list": lambda version: (version / "digests.json").unlink(),
    "a planted file": lambda version: (version / "numpy.py").write_text("print('mine')"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_every_damage_is_found_before_use_and_by_the_check(repository: Path, damage: str, tmp_path: Path) -> None:
    version = repository / "bad" / "1"
    with home_at(tmp_path / "home"):
        require_undamaged(version, read_config(repository / "bad" / "config.pbtxt"))
        DAMAGES[damage](version)
        with pytest.raises(IntegrityError):
            require_undamaged(version, read_config(repository / "bad" / "config.pbtxt"))
        with pytest.raises(IntegrityError):
            find_artifact("bad", store=Store(tmp_path / "store"), repository=repository)
        with pytest.raises(IntegrityError):
            load(version)
    assert any(problem.place.is_relative_to(version) for problem in problems(repository))
    assert not any("good" in str(problem.place) for problem in problems(repository))


def test_a_file_that_did_not_change_is_not_read_again(repository: Path, tmp_path: Path) -> None:
    """By its inode, size and times; so a start of a large model does not wait for its digests."""
    version, config = repository / "bad" / "1", read_config(repository / "bad" / "config.pbtxt")
    with home_at(tmp_path / "home") as home:
        require_undamaged(version, config)
        known = json.loads((home / "digests.json").read_text())
        (home / "digests.json").write_text(json.dumps(dict.fromkeys(known, "0" * 64)))
        with pytest.raises(IntegrityError, match=r"model\.onnx differs"):
            require_undamaged(version, config)
    assert problems(repository) == (), "the check reads everything"


def test_an_edit_that_keeps_the_time_of_a_file_is_found(repository: Path, tmp_path: Path) -> None:
    """As `rsync --times --inplace` of a damaged copy."""
    version, config = repository / "bad" / "1", read_config(repository / "bad" / "config.pbtxt")
    weights = version / "model.onnx"
    with home_at(tmp_path / "home"):
        require_undamaged(version, config)
        times = weights.stat().st_mtime_ns
        flip(weights)
        os.utime(weights, ns=(times, times))
        with pytest.raises(IntegrityError, match=r"model\.onnx differs"):
            require_undamaged(version, config)


def test_compiled_code_that_was_damaged_is_compiled_anew(repository: Path, tmp_path: Path) -> None:
    """No list has it. Python compares the head of such a file with the source, and runs whatever follows."""
    version = repository / "bad" / "1"
    with home_at(tmp_path / "home"):
        require_loadable(repository, "bad")
        (compiled,) = version.glob("__pycache__/wire.*.pyc")
        whole, made = compiled.read_bytes(), compiled.stat().st_mtime_ns
        require_loadable(repository, "bad")
        assert compiled.stat().st_mtime_ns == made, "a reload does not change the folder"
        damaged_name = whole.replace(b"TRUNCATED", b"TRUMCATED")
        assert damaged_name != whole
        compiled.write_bytes(damaged_name)
        require_loadable(repository, "bad")
        assert b"TRUMCATED" not in compiled.read_bytes()


@pytest.mark.parametrize("name", ["digests.json", "serving.json"])
def test_json_of_endless_depth_damages_its_own_model_only(repository: Path, name: str, tmp_path: Path) -> None:
    (repository / "bad" / "1" / name).write_text('{"a":' * 200_000)
    if name == "serving.json":
        list_digests(repository / "bad" / "1", model="bad", version=1)
    with home_at(tmp_path / "home"):
        assert damaged(repository, ["good", "bad"]).keys() == {"bad"}


SPOILT: dict[str, Callable[[Path], object]] = {
    "a tokenizer that is cut": lambda version: os.truncate(version / "tokenizer.json", 300),
    "an empty tokenizer": lambda version: (version / "tokenizer.json").write_text(""),
    "a tokenizer of endless depth": lambda version: (version / "tokenizer.json").write_text('{"a":' * 100_000),
    "an expression that is none": lambda version: spoil(
        version / "tokenizer.json",
        pre_tokenizer={"type": "Split", "pattern": {"Regex": "(("}, "behavior": "Isolated", "invert": False},
    ),
    "a mask that is none": lambda version: spoil(version / "serving.json", facts={"mask_id": []}),
}


def spoil(path: Path, **facts: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **facts}))


@pytest.mark.parametrize("damage", SPOILT)
def test_a_tokenizer_that_the_gateway_cannot_read_hides_its_own_model_only(repository: Path, damage: str) -> None:
    """The library raises bare exceptions, with which a gateway knew no model any more."""
    whole = shutil.copytree(repository / "bad" / "1", repository.parent / "whole")
    SPOILT[damage](repository / "bad" / "1")

    async def scenario() -> list[list[str]]:
        models = Catalogue(EveryModel(good=1, bad=1), repository, timeout_s=5)  # type: ignore[arg-type]
        await models.refresh()
        seen = [[served.name for served in models.models]]
        shutil.rmtree(repository / "bad" / "1")
        shutil.copytree(whole, repository / "bad" / "1")
        await models.refresh()
        return [*seen, sorted(served.name for served in models.models)]

    assert asyncio.run(scenario()) == [["good"], ["bad", "good"]]


class EveryModel(FakeTriton):
    async def model(self, name: str) -> Model:
        return Model(name, "embedding", 4, frozenset(), {"EMBEDDING": (2,)}, {})


def test_a_name_that_triton_reads_as_all_models_is_refused(repository: Path, tmp_path: Path) -> None:
    """`--load-model=*` would load the damaged ones too."""
    for name in ("*", "good?x", "a b", "-x"):
        shutil.copytree(repository / "good", repository / name)
    with home_at(tmp_path / "home"):
        assert damaged(repository, ["good", "*", "good?x", "a b", "-x"]).keys() == {"*", "good?x", "a b", "-x"}


def test_a_list_that_was_written_anew_is_believed(repository: Path, tmp_path: Path) -> None:
    """What the list does not protect from: somebody who may write to the repository."""
    version = repository / "bad" / "1"
    (version / "extra.py").touch()
    list_digests(version, model="bad", version=1)
    with home_at(tmp_path / "home"):
        require_undamaged(version, read_config(repository / "bad" / "config.pbtxt"))


@pytest.mark.slow
@pytest.mark.usefixtures("triton")
def test_the_damaged_model_is_left_out_and_the_others_are_served(repository: Path, tmp_path: Path) -> None:
    flip(repository / "bad" / "1" / "model.onnx")
    with home_at(tmp_path / "home"), launch(repository, drain=False) as server, Client(server.grpc_url) as client:
        assert server.models == ("good",)
        assert "model.onnx differs" in server.refused["bad"]
        with pytest.raises(IntegrityError, match="damaged"):
            server.load("bad")
        # Nor is it loaded again once it is damaged, and what was loaded before answers on.
        flip(repository / "good" / "1" / "tokenizer.json")
        with pytest.raises(IntegrityError, match="damaged"):
            server.load("good")
        assert abs(client.embed("good", ["the cat"]) - by_hand(["the cat"])).max() < 1e-6


@pytest.mark.slow
@pytest.mark.usefixtures("triton")
def test_serving_nothing_but_damage_ends_with_exit_code_5(repository: Path, tmp_path: Path) -> None:
    shutil.rmtree(repository / "good")
    flip(repository / "bad" / "1" / "model.onnx")
    for command in (("serve", repository, "--free-ports"), ("promote", "bad", 1, "-r", repository)):
        done = trimaran(*command, home=tmp_path / "home")
        assert (done.returncode, "model.onnx differs" in done.stderr) == (5, True), done.stderr
