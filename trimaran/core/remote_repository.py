"""A model repository in an object store, such as `s3://bucket/models`, copied to a folder of this machine.

Triton reads such a repository by itself. The gateway and `verify` need only its small files (configurations,
tokenizers, golden bundles); `pull` takes all of it.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from trimaran.core.config_pbtxt import CONFIG_FILE
from trimaran.core.digests import DIGESTS_FILE, damages_of
from trimaran.core.errors import IntegrityError, TrimaranError, UnavailableError, UsageError
from trimaran.core.repository import model_folders, versions_of
from trimaran.core.scratch import ScratchFolder
from trimaran.core.store import write_atomically

# As Triton writes a server of one's own: s3://http://host:9000/bucket/models or s3://host:9000/bucket/models.
_OWN_SERVER = re.compile(r"s3://(?:(?P<scheme>https?)://)?(?P<host>[^/:]+:\d+)/(?P<path>.+)")
_CREDENTIALS = "Credentials are those of AWS: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or ~/.aws."
# A version that Triton has and the folder lacks is looked for at once; everything else this often.
_RENEW_S = 60.0
log = logging.getLogger(__name__)


def is_remote(location: object) -> bool:
    return "://" in str(location)


def is_small(path: str) -> bool:
    """Configurations, and what is JSON: the tokenizer, the golden bundle, digests. No weights and no code."""
    return path.endswith((".json", f"/{CONFIG_FILE}"))


def everything(path: str) -> bool:
    return True


class RemoteRepository:
    """Keeps a `folder` like the wanted files of a repository at `url`. Files that did not change are not read again."""

    def __init__(self, url: str, folder: Path, *, wanted: Callable[[str], bool] = is_small) -> None:
        self.url, self.folder = url.rstrip("/"), folder
        self._wanted = wanted
        self._store, self._root = _opened(self.url)
        # What each file of the folder was when it was copied: its size, and its tag or time in the store.
        self._copied: dict[str, str] = {}
        self._renewed_at = -_RENEW_S
        # A caller that stopped waiting for a slow store may come again before it has answered.
        self._renewing = threading.Lock()
        # Served versions that the repository did not have at the last look.
        self._absent: set[tuple[str, int]] = set()

    def copy(self) -> None:
        """Makes the folder like the repository is now.

        Raises UnavailableError if it cannot be read, UsageError if it holds no model, and IntegrityError if a file
        differs from the digest list of its version.
        """
        with self._translated():
            listed = self._listed()
            if not any(path.count("/") == 1 and path.endswith(f"/{CONFIG_FILE}") for path in listed):
                raise UsageError(
                    f"{self.url} holds no model.",
                    hint="Wanted is the folder of a model repository: NAME/config.pbtxt and NAME/VERSION/.",
                )
            for path in set(self._copied) - set(listed):
                (self.folder / path).unlink(missing_ok=True)
                del self._copied[path]
            # Configurations last: they say which version is served.
            for path in sorted(listed, key=lambda path: (path.endswith(CONFIG_FILE), path)):
                if self._copied.get(path) != listed[path]:
                    self._fetch(path)
                    self._copied[path] = listed[path]
        self._require_undamaged()
        self._renewed_at = time.monotonic()

    def renew(self, served: Mapping[str, int]) -> None:
        """Copies again if a served version is new here, or a minute has passed. A store that is away is ignored."""
        if not self._renewing.acquire(blocking=False):
            return
        try:
            self._renew(served)
        except TrimaranError as error:
            log.warning("%s What was read before is used.", error)
        finally:
            self._renewing.release()

    def _renew(self, served: Mapping[str, int]) -> None:
        absent = {(name, number) for name, number in served.items() if number not in versions_of(self.folder / name)}
        if absent <= self._absent and time.monotonic() - self._renewed_at < _RENEW_S:
            return
        self._absent = absent
        self._renewed_at = time.monotonic()
        self.copy()

    def _listed(self) -> dict[str, str]:
        """The wanted files by their path in the repository, each with what changes when the file does."""
        self._store.invalidate_cache()
        entries = self._store.find(self._root, detail=True)
        listed = {}
        for full, facts in entries.items():
            path = full.removeprefix(self._root).lstrip("/")
            # Also `..`, which would leave the folder.
            hidden = any(part.startswith(".") or part == "__pycache__" for part in path.split("/"))
            if path and not hidden and self._wanted(path):
                listed[path] = f"{facts.get('size')} {facts.get('ETag') or facts.get('created') or facts.get('mtime')}"
        return listed

    def _fetch(self, path: str) -> None:
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if is_small(path):
            write_atomically(target, self._store.cat_file(f"{self._root}/{path}").decode("utf-8"))
        else:
            self._store.get_file(f"{self._root}/{path}", str(target))

    def _require_undamaged(self) -> None:
        """Compares what was copied with the digest lists. What is not copied is Triton's to read, unchecked."""
        for version in (model / str(number) for model in model_folders(self.folder) for number in versions_of(model)):
            for damage in damages_of(version) if (version / DIGESTS_FILE).is_file() else ():
                path = damage.path.relative_to(self.folder).as_posix()
                if damage.kind == "differs" or (damage.kind == "missing" and self._wanted(path)):
                    # Nobody reads it by mistake, and it is copied again the next time.
                    damage.path.unlink(missing_ok=True)
                    self._copied.pop(path, None)
                    raise IntegrityError(
                        f"{self.url}: {path} {damage.sentence}",
                        hint="Copy the repository to the store again.",
                        path=path,
                    )

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """Each store has exceptions of its own, of libraries that need not be installed."""
        try:
            yield
        except TrimaranError:
            raise
        except FileNotFoundError as error:
            raise UsageError(f"{self.url} does not exist.", hint="Is the bucket named, and the path in it?") from error
        except Exception as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise UnavailableError(f"{self.url} cannot be read: {reason}", hint=_CREDENTIALS) from error


@contextlib.contextmanager
def repository_folder(location: str | Path) -> Iterator[Path]:
    """The folder itself, or a copy of the small files of a remote repository."""
    if not is_remote(location):
        yield Path(location)
        return
    with ScratchFolder("repository") as scratch:
        remote = RemoteRepository(str(location), Path(scratch))
        remote.copy()
        yield remote.folder


def _opened(url: str) -> tuple[Any, str]:
    """The file system of the store, and the path of the repository in it."""
    options: dict[str, Any] = {}
    if own := _OWN_SERVER.fullmatch(url):
        url = f"s3://{own['path']}"
        options["endpoint_url"] = f"{own['scheme'] or 'http'}://{own['host']}"
    try:
        from fsspec.core import url_to_fs

        store, root = url_to_fs(url, **options)
    except ImportError as error:
        raise UnavailableError(f"Reading {url} wants a library: {error}", hint="pip install 'trimaran[s3]'") from error
    except ValueError as error:
        raise UsageError(
            f"{url} is not an address that can be read: {error}", hint="Such as s3://bucket/models"
        ) from error
    return store, str(root).rstrip("/")
