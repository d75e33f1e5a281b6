"""Options that several commands share, and what commands make of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trimaran.core.choices import Level, Protocol

if TYPE_CHECKING:
    from trimaran.core.config import DeployConfig
    from trimaran.core.progress import Progress
    from trimaran.core.store import Store

REPOSITORY = Path("model_repository")
Triple = tuple[int, int, int]

ModelOption = Annotated[
    str | None,
    typer.Option(
        "-m",
        "--model",
        help="A model folder (Hugging Face or sentence-transformers layout), `package:NAME` for an installed package "
        "that carries one, or a hub id with `--hub`.",
        show_default=False,
    ),
]
StoreOption = Annotated[
    Path | None, typer.Option("--store", help="Folder of the artifacts; by default $TRIMARAN_HOME/store.")
]
ForceOption = Annotated[bool, typer.Option("--force", help="Make anew what the store already has.")]
WaitQuietOption = Annotated[
    bool, typer.Option("--wait-quiet", help="Measure again, when the machine is quiet, what other work disturbed.")
]
BusyOkOption = Annotated[
    bool, typer.Option("--busy-ok", help="Measure although other work runs; the report says how much of it there was.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else.")]
ThreadsOption = Annotated[
    int | None, typer.Option("--threads", help="Threads of every engine, eager PyTorch included.")
]
BatchOption = Annotated[
    Triple | None, typer.Option("--batch", help="Rows: minimum, typical, maximum.", show_default="1 1 32")
]
SequenceOption = Annotated[
    Triple | None,
    typer.Option("--sequence", help="Tokens: minimum, typical, maximum.", show_default="what the model was made for"),
]
TaskOption = Annotated[
    str | None, typer.Option("--task", help="What the model is asked for; `auto` reads it from the model.")
]
FamilyOption = Annotated[str | None, typer.Option("--family", help="Model family, where the config names another.")]
PoolingOption = Annotated[
    str | None,
    typer.Option(
        "--pooling", help="mean, cls, max, mean-sqrt-length, weighted-mean or last-token; by default the model's."
    ),
]
LayerOption = Annotated[
    list[int] | None, typer.Option("--layer", help="Hidden layer to pool, -1 the last; repeat to average several.")
]
DimensionsOption = Annotated[
    int | None, typer.Option("--dimensions", min=1, help="Keep the first numbers of a vector (Matryoshka).")
]
WhiteningOption = Annotated[
    str | None, typer.Option("--whitening", help="A file made by `trimaran whiten`, put into the graph.")
]
NormalizeOption = Annotated[
    bool | None, typer.Option("--normalize/--no-normalize", help="Unit vectors; by default as the model says.")
]
ModuleOption = Annotated[
    bool | None,
    typer.Option("--module", help="MODEL is `package.module:function`, which returns a module, tokenizer and inputs."),
]
ExporterOption = Annotated[
    str | None, typer.Option("--exporter", help="torchscript or dynamo, instead of the one in the family's row.")
]
HubOption = Annotated[bool | None, typer.Option("--hub", help="Allow MODEL to be fetched from the hub.")]
ReportOption = Annotated[Path | None, typer.Option("--report", help="Folder of the report; by default reports/NAME.")]
DataOption = Annotated[
    str | None,
    typer.Option(
        "--data",
        help="Your labelled data (.tsv, .csv, .jsonl, .parquet; columns text, sentence2, label or score): a candidate "
        "may lose at most 0.1 points of --metric, by the lower end of its interval.",
    ),
]
MetricOption = Annotated[str | None, typer.Option("--metric", help="Of --data: spearman, accuracy, f1 or exact-match.")]
BudgetOption = Annotated[
    float | None,
    typer.Option(
        "--budget",
        min=1.0,
        help="Seconds in which a searched INT8 candidate may look for the layers that must stay in float.",
        show_default="90",
    ),
]
FidelityOption = Annotated[Level, typer.Option("--fidelity", help="How true to eager PyTorch a candidate must stay.")]
GateOption = Annotated[
    list[str] | None, typer.Option("--gate", help="Override one limit: METRIC=NUMBER. May be repeated.")
]
CandidatesOption = Annotated[
    str | None, typer.Option("--candidates", help="Comma-separated; `trimaran doctor` lists them.")
]
NameOption = Annotated[str | None, typer.Option("--name", help="What callers will call; by default the model's name.")]
NameArgument = Annotated[str, typer.Argument(help="The model.")]
ArtifactArgument = Annotated[str, typer.Argument(help="An artifact: folder, name in the store, or digest.")]
NameOrArtifactArgument = Annotated[
    str,
    typer.Argument(metavar="NAME|ARTIFACT", help="A deployed model by name, or an artifact by folder or digest."),
]
RepositoryArgument = Annotated[Path, typer.Argument(help="The model repository.")]
RepositoryOption = Annotated[Path, typer.Option("-r", "--repository", help="The model repository.")]
ProtocolOption = Annotated[Protocol, typer.Option("--protocol", help="How to talk to the server.")]
PromptOption = Annotated[
    str | None, typer.Option("--prompt", help="A prompt of the model, by name, such as `query`; else its default one.")
]


def deploy_flags(context: typer.Context) -> dict[str, Any]:
    """The typed flags that set a key of the config: a command names such a parameter as the key."""
    from trimaran.core.config import DeployConfig

    def typed(name: str) -> bool:
        source = context.get_parameter_source(name)
        return source is not None and source.name == "COMMANDLINE"

    return {
        name: str(value) if isinstance(value, Path) else value
        for name, value in context.params.items()
        if name in DeployConfig.model_fields and typed(name)
    }


def deploy_config_of(context: typer.Context, file: Path | None = None) -> DeployConfig:
    """The config that the flags and the file make together."""
    from trimaran.core.config import deploy_config

    return deploy_config(deploy_flags(context), file=file)


def open_store(folder: Path | None, *, force: bool = False) -> Store:
    from trimaran.core.store import Store, default_home

    return Store((folder or default_home() / "store").absolute(), force=force)


def progress_on_stderr() -> Progress:
    from trimaran.core.progress import progress_for

    return progress_for(sys.stderr)


def typed_command() -> tuple[str, ...]:
    """As the report keeps it."""
    return ("trimaran", *sys.argv[1:])
