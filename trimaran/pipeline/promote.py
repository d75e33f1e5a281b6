"""Changes which version of a model is served, in the repository and on the servers that serve it, or not at all."""

from __future__ import annotations

from pathlib import Path

from trimaran.core.config_pbtxt import CONFIG_FILE, read_config
from trimaran.core.digests import compile_code, require_undamaged
from trimaran.core.errors import RepositoryError, ServerError, UnavailableError, UsageError
from trimaran.core.progress import Progress
from trimaran.core.scratch import ScratchFolder
from trimaran.core.signatures import require_signed
from trimaran.core.spec import Frozen
from trimaran.judging.golden import GOLDEN_FILE, read_golden
from trimaran.model_repository.check import problems_of_version
from trimaran.model_repository.layout import copy_version
from trimaran.model_repository.versions import (
    add_beside,
    forget_last,
    model_versions,
    models_beside,
    pin,
    remember,
    restore,
)
from trimaran.serving.triton import control, processes, readiness
from trimaran.serving.triton.golden_check import serve_and_verify
from trimaran.serving.triton.states import Running, running


class Promoted(Frozen):
    name: str
    version: int
    # Versions that were served before.
    before: tuple[int, ...]
    # HTTP ports of the live servers that switched.
    servers: tuple[int, ...]
    # Metrics of the trial run; None if there was none.
    proven: dict[str, float] | None


def promote(repository: Path, name: str, version: int, *, prove: bool, progress: Progress) -> Promoted:
    """Serves `version` from now on, in the repository and on the running servers.

    Raises RepositoryError for a version that is damaged, does not load or answers otherwise than it was proven to.
    Nothing changes then.
    """
    repository = repository.absolute()
    promoted = _switch(repository, name, version, prove=prove, progress=progress)
    remember(repository, name, promoted.before, version)
    return promoted


def rollback(repository: Path, name: str, *, prove: bool, progress: Progress) -> Promoted:
    """Serves what was served before the latest promotion."""
    repository = repository.absolute()
    previous = model_versions(repository, name).previous
    if previous is None:
        raise UsageError(f"{name} was not promoted before, so there is nothing to go back to.")
    promoted = _switch(repository, name, previous, prove=prove, progress=progress)
    forget_last(repository, name)
    return promoted


def _switch(repository: Path, name: str, version: int, *, prove: bool, progress: Progress) -> Promoted:
    facts = model_versions(repository, name)
    if version in facts.versions:
        require_undamaged(repository / name / str(version), read_config(repository / name / CONFIG_FILE))
        compile_code(repository / name / str(version))
    if version in facts.versions and (problems := problems_of_version(repository / name, version)):
        raise RepositoryError(
            f"Version {version} of {name} is refused. {_served(facts.served)} on. " + "; ".join(map(str, problems)),
            problems=problems,
        )
    proven = _proven(repository, name, version, progress) if prove and version in facts.versions else None
    servers = [server for server in running() if server.repository == repository and name in server.models]
    beside = models_beside(repository, name, version)
    for key in {server.trust_key for server in servers if server.trust_key}:
        for model in (*beside, name):
            require_signed(repository / model / str(version), key)
    before: dict[Path, str] = {}
    try:
        if servers:
            before |= add_beside(repository, name, version)
        for server in servers:
            _load_beside(server, beside)
        # Loading an ensemble also loads its steps, so these keep both versions until the ensemble has switched.
        before |= pin(repository, name, version, beside=False)
        for server in servers:
            with progress.stage("switch") as step:
                control.load(server.control, name)
                control.switched(server.control, name, version)
                processes.kill_other_versions(server.pid, name, version)
                readiness.send_canary(server.http_port, name)
                step.outcome(f"the server on port {server.http_port} serves version {version} of {name}")
        before = {**pin(repository, name, version), **before}
        for server in servers:
            _load_beside(server, beside)
    except ServerError as error:
        restore(before)
        for server in servers:
            control.load(server.control, name)
            _load_beside(server, beside)
        raise RepositoryError(
            f"Version {version} of {name} is refused, it does not load: {error.message} {_served(facts.served)} on.",
            hint="`trimaran repository check` looks for the reason.",
        ) from error
    return Promoted(
        name=name,
        version=version,
        before=facts.served,
        servers=tuple(server.http_port for server in servers),
        proven=proven,
    )


def _load_beside(server: Running, models: tuple[str, ...]) -> None:
    """Loads the stages again, as they are configured now. Stages that the server has not loaded are not needed."""
    for model in models:
        if control.ready_versions(server.control, model):
            control.load(server.control, model)


def _proven(repository: Path, name: str, version: int, progress: Progress) -> dict[str, float] | None:
    """Serves a copy of the version and checks it against its golden bundle; None without a bundle or without Triton."""
    path = repository / name / str(version) / GOLDEN_FILE
    if not path.is_file():
        return None
    golden = read_golden(path)
    with progress.stage("trial") as step, ScratchFolder("trial") as scratch:
        copy_version(repository / name, version, Path(scratch) / name)
        for stage in models_beside(repository, name, version):
            copy_version(repository / stage, version, Path(scratch) / stage)
        try:
            verified = serve_and_verify(Path(scratch), name, golden)
        except UnavailableError as error:
            step.outcome(f"not done: {error}")
            return None
        step.outcome(", ".join(f"{check}" for check in verified.checks))
    return verified.metrics


def _served(versions: tuple[int, ...]) -> str:
    return f"Version {', '.join(map(str, versions)) or 'none'} serves"
