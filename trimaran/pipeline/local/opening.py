"""Finds what `trimaran.load` was asked for, and opens it with the code that serves it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from trimaran.core.artifact import MANIFEST, Artifact, load_artifact
from trimaran.core.backends import backend, open_session
from trimaran.core.choices import Rows
from trimaran.core.config_pbtxt import CONFIG_FILE
from trimaran.core.corpus import answering_of
from trimaran.core.digests import require_undamaged
from trimaran.core.environment import usable_cores
from trimaran.core.errors import UnavailableError, UsageError
from trimaran.core.proven_here import require_proof_here
from trimaran.core.serving_json import BLS, SERVING_FILE, read_serving
from trimaran.core.store import Store, default_home
from trimaran.pipeline.artifact_lookup import artifact_of_version, certified, find_artifact, served_version
from trimaran.runtime.answers import Answering
from trimaran.runtime.text import TextEncoder
from trimaran.runtime.triton_text_model import opened


@dataclass(frozen=True)
class Source:
    """A model that can be opened, in any process of this machine."""

    # A version folder of a repository, or the folder of an artifact.
    folder: Path
    rows: Rows
    # Where `rows` comes from.
    why: str


class LocalEncoder(TextEncoder):
    """The encoder of the server, which can also be told to put no prompt before a text, and to cut texts earlier."""

    @classmethod
    def of(cls, encoder: TextEncoder) -> LocalEncoder:
        local = cls.__new__(cls)
        vars(local).update(vars(encoder))
        # The empty name stands for no prompt at all, also where the model has a default one.
        local._prompts.setdefault("", "")
        return local

    def cut_at(self, tokens: int) -> None:
        self._maximum = tokens
        self._tokenizer.enable_truncation(max_length=tokens, direction=self._cut_side)


@dataclass(frozen=True)
class OpenModel:
    """An engine that is open, with all that stands around it."""

    answering: Answering
    encoder: LocalEncoder
    close: Callable[[], None]


def find_source(reference: str | Path, *, repository: Path, store: Path | None) -> Source:
    """By a version folder, a model's folder in a repository, an artifact's folder, or by a name."""
    folder = Path(reference).expanduser()
    if (folder / SERVING_FILE).is_file():
        return _of_version(folder.absolute())
    if (folder / CONFIG_FILE).is_file():
        return _of_version(served_version(folder.absolute().parent, folder.absolute().name))
    home = Store((store or default_home() / "store").absolute())
    if (folder / MANIFEST).is_file():
        known = certified(load_artifact(folder.absolute()), home)
        return Source(known.artifact.directory, known.rows, known.why)
    if folder.is_dir():
        raise UsageError(
            f"{folder} is neither a version of a model repository nor an artifact.",
            hint=f"A trained model is made ready by `trimaran deploy -m {folder}`.",
        )
    name = str(reference)
    if "/" not in name and (repository / name / CONFIG_FILE).is_file():
        return _of_version(served_version(repository.absolute(), name))
    known = find_artifact(name, store=home, repository=repository)
    return Source(known.artifact.directory, known.rows, known.why)


def manifest_of(source: Source) -> Artifact:
    """What is known of the model. A version carries the manifest of the artifact that it was laid out from."""
    return load_artifact(source.folder, verify=False)


def open_source(source: Source, *, threads: int | None) -> OpenModel:
    """Opens a version as Triton would, or an artifact. Raises UnavailableError where its engine cannot run here."""
    if not (source.folder / SERVING_FILE).is_file():
        return _open_artifact(manifest_of(source), source.rows, threads=threads or usable_cores())
    serving = read_serving(source.folder)
    if serving.backend == BLS:
        # Its engine is another model of the server, so the artifact is opened instead.
        artifact = artifact_of_version(source.folder, Store(default_home() / "store"))
        return _open_artifact(artifact, source.rows, threads=threads or serving.threads)
    row = backend(serving.backend)
    if reason := row.available():
        raise UnavailableError(f"{row.name} cannot run here: {reason}.", hint=row.hint())
    _require_environment(serving.execution_environment, row.module)
    engine, answering, _ = opened(source.folder, threads=threads)
    return _open_model(answering, engine.close)


def _open_artifact(artifact: Artifact, rows: Rows, *, threads: int) -> OpenModel:
    _require_environment(artifact.execution_environment, backend(artifact.backend).module)
    os.environ.update(artifact.execution_environment)
    stack = contextlib.ExitStack()
    session = stack.enter_context(open_session(artifact, threads=threads))
    answering = answering_of(artifact, session.infer, policy=rows, maximum_batch=artifact.profile.batch.maximum)
    return _open_model(answering, stack.close)


def _open_model(answering: Answering, close: Callable[[], None]) -> OpenModel:
    encoder = LocalEncoder.of(answering.encoder)
    return OpenModel(replace(answering, encoder=encoder), encoder, close)


def _of_version(version: Path) -> Source:
    require_undamaged(version)
    require_proof_here(version)
    return Source(version, read_serving(version).rows, f"as {version.parent.name} version {version.name} is served")


def _require_environment(variables: Mapping[str, str], module: str) -> None:
    """The engine's library reads these once, when it is first used: later it is too late."""
    missing = {name: value for name, value in variables.items() if os.environ.get(name) != value}
    if missing and module in sys.modules:
        pairs = " ".join(f"{name}={value}" for name, value in missing.items())
        raise UsageError(
            f"This model was proven with {pairs}, and {module} was imported without it.",
            hint=f"Load the model before anything else imports {module}, or start Python with {pairs}.",
        )
