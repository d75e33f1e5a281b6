"""Options that several commands share, and what commands make of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from trimaran.core.choices import Level, Protocol

if TYPE_CHECKING:
    from trimaran.core.config import DeployConfig
    from trimaran.core.progress import Progress
    from trimaran.core.store import Store

REPOSITORY = Path("model_repository")
Triple = tuple[int, int, int]
# Groups of options in the help. Those without a group come first: the few that matter most.
THE_MODEL, THE_CANDIDATES, THE_PROOF, THE_RUN = "The model", "The candidates", "The proof", "The run"

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
# A command names this parameter `folder`; `deploy_flags` reads it.
ModelArgument = Annotated[
    str | None,
    typer.Argument(metavar="MODEL", help="The same as `--model`, such as a folder.", show_default=False),
]
StoreOption = Annotated[
    Path | None,
    typer.Option("--store", help="Folder of the artifacts; by default $TRIMARAN_HOME/store.", rich_help_panel=THE_RUN),
]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Make again what the store already has.", rich_help_panel=THE_RUN)
]
WaitQuietOption = Annotated[
    bool,
    typer.Option(
        "--wait-quiet",
        help="Measure again, when the machine is quiet, what other work disturbed.",
        rich_help_panel=THE_RUN,
    ),
]
BusyOkOption = Annotated[
    bool,
    typer.Option(
        "--busy-ok",
        help="Measure although other work runs; the report says how much of it there was.",
        rich_help_panel=THE_RUN,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else.")]
ThreadsOption = Annotated[
    int | None,
    typer.Option(
        "--threads",
        help="Threads of every engine, eager PyTorch included.",
        show_default="all cores",
        rich_help_panel=THE_CANDIDATES,
    ),
]
BatchOption = Annotated[
    Triple | None,
    typer.Option(
        "--batch", help="Rows: minimum, typical, maximum.", show_default="1 1 32", rich_help_panel=THE_CANDIDATES
    ),
]
SequenceOption = Annotated[
    Triple | None,
    typer.Option(
        "--sequence",
        help="Tokens: minimum, typical, maximum.",
        show_default="what the model was made for",
        rich_help_panel=THE_CANDIDATES,
    ),
]
TaskOption = Annotated[
    str | None,
    typer.Option(
        "--task",
        help="The model's task; `auto` reads it from the model.",
        show_default="auto",
        rich_help_panel=THE_MODEL,
    ),
]
FamilyOption = Annotated[
    str | None,
    typer.Option("--family", help="Model family, where the config names another.", rich_help_panel=THE_MODEL),
]
PoolingOption = Annotated[
    str | None,
    typer.Option(
        "--pooling",
        help="mean, cls, max, mean-sqrt-length, weighted-mean or last-token; by default the model's.",
        rich_help_panel=THE_MODEL,
    ),
]
LayerOption = Annotated[
    list[int] | None,
    typer.Option(
        "--layer", help="Hidden layer to pool, -1 the last; repeat to average several.", rich_help_panel=THE_MODEL
    ),
]
DimensionsOption = Annotated[
    int | None,
    typer.Option(
        "--dimensions", min=1, help="Keep the first numbers of a vector (Matryoshka).", rich_help_panel=THE_MODEL
    ),
]
WhiteningOption = Annotated[
    str | None,
    typer.Option(
        "--whitening", help="A file made by `trimaran whiten`, put into the graph.", rich_help_panel=THE_MODEL
    ),
]
NormalizeOption = Annotated[
    bool | None,
    typer.Option(
        "--normalize/--no-normalize", help="Unit vectors; by default as the model says.", rich_help_panel=THE_MODEL
    ),
]
ModuleOption = Annotated[
    bool | None,
    typer.Option(
        "--module",
        help="MODEL is a function, as `module:name`, that returns a module, tokenizer and inputs.",
        rich_help_panel=THE_MODEL,
    ),
]
ExporterOption = Annotated[
    str | None,
    typer.Option(
        "--exporter", help="torchscript or dynamo, instead of the one in the family's row.", rich_help_panel=THE_MODEL
    ),
]
HubOption = Annotated[
    bool | None, typer.Option("--hub", help="Allow MODEL to be fetched from the hub.", rich_help_panel=THE_MODEL)
]
ReportOption = Annotated[
    Path | None,
    typer.Option("--report", help="Folder of the report; by default reports/NAME.", rich_help_panel=THE_RUN),
]
DataOption = Annotated[
    str | None,
    typer.Option(
        "--data",
        help="Your labelled data (.tsv, .csv, .jsonl, .parquet; columns text, sentence2, label or score): a candidate "
        "may lose at most 0.1 points of --metric, by an exact 95 % bound (3,100 items at least).",
        rich_help_panel=THE_PROOF,
    ),
]
MetricOption = Annotated[
    str | None,
    typer.Option(
        "--metric", help="Metric for --data: spearman, accuracy, f1 or exact-match.", rich_help_panel=THE_PROOF
    ),
]
BudgetOption = Annotated[
    float | None,
    typer.Option(
        "--budget",
        min=1.0,
        help="Seconds of work in which a searched INT8 candidate may look for the layers that must stay in float. "
        "On a busy machine they last up to four times as long.",
        show_default="90",
        rich_help_panel=THE_CANDIDATES,
    ),
]
FidelityOption = Annotated[Level, typer.Option("--fidelity", help="How close to eager PyTorch a candidate must stay.")]
GateOption = Annotated[
    list[str] | None,
    typer.Option("--gate", help="Override one limit: METRIC=NUMBER. May be repeated.", rich_help_panel=THE_PROOF),
]
CandidatesOption = Annotated[
    str | None,
    typer.Option("--candidates", help="Comma-separated; `trimaran doctor` lists them.", rich_help_panel=THE_CANDIDATES),
]
FolderOption = Annotated[
    Path | None,
    typer.Option("-o", "--output", help="Also write a plain folder: model, tokenizer, config, manifest with proofs."),
]
LayoutOption = Annotated[
    Literal["plain", "optimum"],
    typer.Option(
        "--layout",
        help="Layout of the folder -o: trimaran's own, or one that optimum's ORTModel and OVModel classes open.",
    ),
]
NameOption = Annotated[str | None, typer.Option("--name", help="What callers will call; by default the model's name.")]
NameArgument = Annotated[str, typer.Argument(help="The model.")]
NameOrArtifactArgument = Annotated[
    str,
    typer.Argument(metavar="NAME|ARTIFACT", help="A deployed model by name, or an artifact by folder or digest."),
]


def _on_this_machine(repository: Path) -> Path:
    """Refuses an address: a path has lost one of its slashes."""
    from trimaran.core.errors import UsageError

    scheme, separator, rest = str(repository).partition(":/")
    if separator and "/" not in scheme:
        url = f"{scheme}://{rest.replace(':/', '://')}"
        raise UsageError(
            f"This command wants a folder, and {url} is in an object store.",
            hint=f"`trimaran pull {url}` copies it. `gateway` and `verify` read it where it is.",
        )
    return repository


RepositoryArgument = Annotated[Path, typer.Argument(help="The model repository.", callback=_on_this_machine)]
RepositoryOption = Annotated[
    Path, typer.Option("-r", "--repository", help="The model repository.", callback=_on_this_machine)
]
# A folder or an address in an object store. No path, which would lose a slash.
AnyRepositoryOption = Annotated[
    str, typer.Option("-r", "--repository", help="The model repository: a folder, or s3://bucket/path.")
]
ProtocolOption = Annotated[Protocol, typer.Option("--protocol", help="How to talk to the server.")]
PromptOption = Annotated[
    str | None, typer.Option("--prompt", help="A prompt of the model, by name, such as `query`; else its default one.")
]


def typed(context: typer.Context, name: str) -> bool:
    """Whether the parameter stands on the command line."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def deploy_flags(context: typer.Context) -> dict[str, Any]:
    """The typed flags that set a key of the config: a command names such a parameter as the key."""
    from trimaran.core.config import DeployConfig
    from trimaran.core.errors import UsageError

    flags = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in context.params.items()
        if name in DeployConfig.model_fields and typed(context, name)
    }
    if typed(context, "folder"):
        if "model" in flags:
            raise UsageError(
                f"Two models were named: {context.params['folder']} and {flags['model']}.",
                hint="Type one of them, with or without -m.",
            )
        flags["model"] = context.params["folder"]
    return flags


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
