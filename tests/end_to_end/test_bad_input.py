"""Everything that can be wrong with a request: a sentence, an exit code of the table, and nothing left behind."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import trimaran, trimaran_here
from trimaran.core.artifact import load_artifact


class Exploit:
    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, ("touch exploited",)


def without_config(model: Path) -> None:
    (model / "config.json").unlink()


def unknown_family(model: Path) -> None:
    edit_config(model, model_type="quokka")


def without_weights(model: Path) -> None:
    (model / "model.safetensors").unlink()


def truncated(model: Path) -> None:
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])


def pickled(model: Path) -> None:
    without_weights(model)
    (model / "pytorch_model.bin").write_bytes(pickle.dumps(Exploit()))


def damaged_config(model: Path) -> None:
    (model / "config.json").write_text("{")


def fresh_head(model: Path) -> None:
    edit_config(model, architectures=["BertForSequenceClassification"])


def edit_config(model: Path, **changes: object) -> None:
    path = model / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


MODELS: list[tuple[Callable[[Path], None], tuple[str, ...], int, str]] = [
    (without_config, (), 2, "is no model folder"),
    (unknown_family, (), 2, "'quokka', which is no known encoder family"),
    (without_weights, (), 2, "has no weights"),
    (truncated, (), 5, "is damaged or cut short"),
    (pickled, (), 2, "is a pickle that wants to run code; it was not loaded"),
    (damaged_config, (), 5, "is not JSON"),
    (fresh_head, (), 2, "they would be random numbers"),
    (lambda model: None, ("--task", "text-classification"), 2, "has no head for text-classification"),
    (lambda model: None, ("--sequence", "1", "64", "100"), 2, "Sequence 100 is beyond the 64 positions"),
    (lambda model: None, ("--sequence", "9", "5", "12"), 2, "minimum <= typical <= maximum"),
    (lambda model: None, ("--candidates", "onnxruntime-fp31"), 2, "Did you mean onnxruntime-fp32?"),
    (lambda model: None, ("--task", "telepathy"), 2, "Unknown task 'telepathy'"),
    (lambda model: None, ("--gate", "charm=1"), 2, "No gate 'charm'"),
    (lambda model: None, ("-o", "/proc/trimaran"), 2, "/proc/trimaran cannot be written to"),
]


@pytest.mark.usefixtures("workers_here")
@pytest.mark.parametrize(("spoil", "flags", "code", "words"), MODELS, ids=[words for *_, words in MODELS])
def test_a_bad_request_is_a_sentence_and_leaves_nothing(
    tiny_model: Path, tmp_path: Path, spoil: Callable[[Path], None], flags: tuple[str, ...], code: int, words: str
) -> None:
    model, work = tmp_path / "model", tmp_path / "work"
    shutil.copytree(tiny_model, model)
    work.mkdir()
    spoil(model)
    done = trimaran_here("deploy", "-m", model, *flags, "--json", home=tmp_path / "home", cwd=work)
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert json.loads(done.stdout)["error"]["exit_code"] == code
    assert list(work.iterdir()) == []
    assert not list((tmp_path / "home").rglob(".making-*"))
    assert not (tmp_path / "exploited").exists()


@pytest.mark.parametrize("content", [b"", b"\x00\x01\x02\xff" * 50])
def test_a_useless_calibration_file_is_refused(tiny_model: Path, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "texts.txt").write_bytes(content)
    done = trimaran_here("deploy", "-m", tiny_model, "--calibration", "texts.txt", home=tmp_path / "home", cwd=tmp_path)
    assert done.returncode == 2
    assert "texts.txt" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["texts.txt"]


@pytest.mark.parametrize("model", ["no/such/folder", "package:no_such_package"])
def test_a_model_that_is_not_there_is_said_so(tmp_path: Path, model: str) -> None:
    done = trimaran_here("deploy", "-m", model, home=tmp_path / "home", cwd=tmp_path)
    assert done.returncode in (2, 3)
    assert "There is no" in done.stderr


def test_an_unknown_flag_is_refused(tmp_path: Path) -> None:
    assert trimaran("deploy", "--modle", "x", home=tmp_path / "home", cwd=tmp_path).returncode == 2


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    from tests.tiny import tiny_artifact
    from trimaran.model_repository.layout import lay_out

    lay_out(tiny_artifact(tmp_path / "store"), repository=tmp_path / "repo", name="tiny", rows="padded", threads=1)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = trimaran("serve", tmp_path / "repo", "--http-port", port, home=tmp_path / "home")
    assert done.returncode == 2
    assert str(port) in done.stderr


@pytest.fixture
def small_disk(tmp_path: Path) -> object:
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=100k", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("a small file system cannot be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.usefixtures("workers_here")
def test_a_full_disk_is_a_sentence_and_leaves_nothing(tiny_model: Path, tmp_path: Path, small_disk: Path) -> None:
    done = trimaran_here("export", "-m", tiny_model, home=small_disk / "home", cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert "disk is full" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list((small_disk / "home").rglob(".making-*"))
    for manifest in (small_disk / "home").rglob("manifest.json"):
        load_artifact(manifest.parent)
