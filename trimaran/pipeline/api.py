"""What `import trimaran` offers: load a proven model, deploy a trained one, serve a repository."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Unpack

from trimaran.core.config import deploy_config
from trimaran.core.errors import UsageError
from trimaran.core.progress import SilentProgress, progress_for
from trimaran.core.store import Store, default_home
from trimaran.pipeline.line import DeployResult
from trimaran.pipeline.line import deploy as walk
from trimaran.pipeline.local.model import LocalModel
from trimaran.pipeline.local.opening import find_source, manifest_of
from trimaran.pipeline.local.tasks import MODELS
from trimaran.serving.triton.server import LaunchOptions, Server, launch


def load(
    name_or_folder: str | Path,
    *,
    repository: str | Path = "model_repository",
    store: str | Path | None = None,
    threads: int | None = None,
) -> LocalModel:
    """Opens a proven model in this process, without Triton. Its methods are those of its task.

    `name_or_folder` is one of: the name of a model in `repository`, whose served version is opened; the folder of a
    version; an artifact, by its folder, its name in the store or its digest. By default it runs with as many `threads`
    as it was proven with.

    Raises UsageError when there is no such model, UnavailableError when its engine cannot run here.

    Examples:
        >>> model = trimaran.load("minilm")
        >>> vectors = model.encode(["one text", "another"])
    """
    source = find_source(name_or_folder, repository=Path(repository), store=Path(store) if store else None)
    return MODELS[manifest_of(source).task](source, threads=threads).open()


def deploy(
    model: str | Path,
    *,
    config: str | Path | None = None,
    store: str | Path | None = None,
    show_progress: bool = False,
    **settings: Any,
) -> DeployResult:
    """Takes a trained model through the whole line, as `trimaran deploy` does: the same settings, by the same names.

    `settings` are the long flags with underscores (`fidelity`, `output`, `name`, `sequence`, `serve_check`, …);
    `config` is a TOML file of them. The result holds the report, and its `folder` can be loaded.

    Raises QualityError when no candidate keeps its gates, UsageError for an unknown setting.

    Examples:
        >>> deployed = trimaran.deploy("./my-model", fidelity="strict")
        >>> deployed.report.verdict.chosen
        'openvino-int8-mixed'
        >>> model = trimaran.load(deployed.folder)
    """
    options = {"model": str(model), **{key: _plain(value) for key, value in settings.items()}}
    chosen = deploy_config(options, file=Path(config) if config else None)
    if chosen.target:
        raise UsageError(
            "A model is prepared for GPUs that are not here by the command.", hint="trimaran deploy --target"
        )
    arguments = ", ".join([repr(str(model)), *(f"{key}={value!r}" for key, value in settings.items())])
    return walk(
        chosen,
        store=Store(Path(store or default_home() / "store").absolute(), force=chosen.force),
        progress=progress_for(sys.stderr) if show_progress else SilentProgress(),
        command=(f"trimaran.deploy({arguments})",),
    )


def serve(repository: str | Path = "model_repository", **options: Unpack[LaunchOptions]) -> Server:
    """Starts Triton over a repository and returns when every model has answered. A context manager.

    Free ports are picked unless they are given (`http_port`, `grpc_port`, `metrics_port`).

    Raises UnavailableError where there is no Triton, ToolError when it did not start, UsageError for `shadow`, which
    only the command has.

    Examples:
        >>> with trimaran.serve("model_repository") as server, trimaran.Client(server.grpc_url) as client:
        ...     client.embed("minilm", "some text").shape
        (384,)
    """
    if options.get("shadow"):
        raise UsageError(
            "A shadow process needs the supervisor of the command.", hint="trimaran serve --shadow 0.001 --detach"
        )
    return launch(Path(repository), **options)


def _plain(value: Any) -> Any:
    """Paths as strings: that is what the flags are."""
    return str(value) if isinstance(value, Path) else value
