"""With `--trust-key`, a repository that somebody changed on its way is refused, its digest lists included."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import trimaran
from tests.tiny import tiny_artifact
from trimaran.core.digests import list_digests
from trimaran.core.errors import IntegrityError, UsageError
from trimaran.model_repository.layout import lay_out
from trimaran.model_repository.seal import seal
from trimaran.model_repository.versions import pin
from trimaran.serving.triton.undamaged import require_loadable

pytest.importorskip("cryptography")


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, Path]:
    """A private and a public key, made as the help says."""
    private, public = tmp_path / "key.pem", tmp_path / "key.pub"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", private], check=True, capture_output=True)
    subprocess.run(["openssl", "pkey", "-in", private, "-pubout", "-out", public], check=True, capture_output=True)
    return private, public


@pytest.fixture
def repository(tmp_path: Path, keys: tuple[Path, Path]) -> Path:
    for _ in range(2):
        lay_out(tiny_artifact(tmp_path / "s"), repository=tmp_path / "r", name="m", rows="padded", threads=1)
    assert len(seal(tmp_path / "r", key=keys[0])) == 4
    return tmp_path / "r"


def edit(version: Path) -> None:
    (version / "model.py").write_text("raise SystemExit")
    list_digests(version, model="m", version=int(version.name))


def swap(version: Path) -> None:
    """Another version, signed too, in the place of this one: an old weakness comes back."""
    shutil.rmtree(version)
    shutil.copytree(version.parent / "2", version)


def link(version: Path) -> None:
    """What it leads to can be changed by somebody else, after it was compared."""
    elsewhere = version.parents[2] / "elsewhere"
    version.rename(elsewhere)
    version.symlink_to(elsewhere)


FORGERIES: dict[str, Callable[[Path], object]] = {
    "an edited stage with a list of its own": edit,
    "no signature": lambda version: (version / "digests.sig").unlink(),
    "a broken signature": lambda version: (version / "digests.sig").write_text("AAAA"),
    "another version in its place": swap,
    "a link to the version": link,
    "a backend beside the version": lambda version: (version.parent / "libtriton_python.so").touch(),
    "an edited configuration": lambda version: (version.parent / "config.pbtxt").write_text(
        (version.parent / "config.pbtxt").read_text() + '\nparameters { key: "EXECUTION_ENV_PATH" }\n'
    ),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_every_forgery_is_refused(repository: Path, keys: tuple[Path, Path], forgery: str) -> None:
    require_loadable(repository, "m", keys[1])
    FORGERIES[forgery](repository / "m" / "1")
    with pytest.raises(IntegrityError):
        require_loadable(repository, "m", keys[1])


def test_compiled_code_is_not_run_in_place_of_the_signed_source(repository: Path, keys: tuple[Path, Path]) -> None:
    planted = repository / "m" / "1" / "__pycache__" / "model.cpython-311.pyc"
    planted.parent.mkdir(exist_ok=True)
    planted.touch()
    require_loadable(repository, "m", keys[1])
    assert not planted.exists()


def test_a_promoted_version_is_trusted_and_another_key_is_not(
    repository: Path, keys: tuple[Path, Path], tmp_path: Path
) -> None:
    pin(repository, "m", 2)
    require_loadable(repository, "m", keys[1])
    other = tmp_path / "other.pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", other], check=True, capture_output=True)
    seal(repository, key=other)
    with pytest.raises(IntegrityError, match="not signed with this key"):
        require_loadable(repository, "m", keys[1])
    with pytest.raises(UsageError, match="is not a public key"):
        require_loadable(repository, "m", other)


@pytest.mark.slow
@pytest.mark.usefixtures("triton")
def test_the_server_refuses_it_with_exit_code_5(repository: Path, keys: tuple[Path, Path], tmp_path: Path) -> None:
    edit(repository / "m" / "1")
    done = trimaran("serve", repository, "--free-ports", "--trust-key", keys[1], home=tmp_path / "home")
    assert (done.returncode, "is not signed with this key" in done.stderr) == (5, True), done.stderr
