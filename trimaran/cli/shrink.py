"""`trimaran shrink`: a smaller model, as a folder that `trimaran deploy` takes."""

from __future__ import annotations

import math
import re
import shlex
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from trimaran.cli.app import app
from trimaran.cli.options import JsonOption, MetricOption, TaskOption, progress_on_stderr, typed
from trimaran.cli.output import emit
from trimaran.core.errors import QualityError, UsageError

_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
_LEARNING = "Learning, with --layers or --to"
_LEARNING_ONLY = (
    "texts",
    "data",
    "metric",
    "budget",
    "resume",
    "epochs",
    "learning_rate",
    "temperature",
    "label_weight",
    "seed",
)


@app.command("shrink", rich_help_panel="Stages")
def shrink_command(
    context: typer.Context,
    model: Annotated[str, typer.Argument(help="A model folder, or `package:NAME`.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder to write.")],
    more: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILES", help="More files of texts, as the shell gives them for `*.txt`.", show_default=False
        ),
    ] = None,
    vocabulary: Annotated[
        list[Path] | None,
        typer.Option(
            "--vocabulary",
            help="Texts (.txt, .jsonl, .tsv, .csv, .parquet) whose tokens stay; again for more files.",
        ),
    ] = None,
    layers: Annotated[
        int | None, typer.Option("--layers", min=1, help="Number of layers to keep. Needs --texts.")
    ] = None,
    to: Annotated[
        Literal["bilstm"] | None,
        typer.Option("--to", help="Another kind of model: a small BiLSTM. Needs --texts.", show_default=False),
    ] = None,
    texts: Annotated[
        list[Path] | None,
        typer.Option("--texts", help="Texts to learn the model's answers from, without labels; again for more files."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            help="Your labelled data: the report says what the student keeps of --metric.",
            rich_help_panel=_LEARNING,
        ),
    ] = None,
    metric: MetricOption = None,
    budget: Annotated[
        str, typer.Option("--budget", help="Time for the whole run, such as 90s, 20m or 1h.", rich_help_panel=_LEARNING)
    ] = "20m",
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue a run that did not finish.", rich_help_panel=_LEARNING)
    ] = False,
    epochs: Annotated[
        int | None,
        typer.Option(
            "--epochs",
            min=1,
            help="Passes over the texts, at most.",
            show_default="8; a BiLSTM 30",
            rich_help_panel=_LEARNING,
        ),
    ] = None,
    learning_rate: Annotated[
        float | None,
        typer.Option(
            "--learning-rate",
            help="The highest learning rate of the run.",
            show_default="0.0003; a BiLSTM 0.002",
            rich_help_panel=_LEARNING,
        ),
    ] = None,
    temperature: Annotated[
        float,
        typer.Option(
            "--temperature",
            min=0.1,
            help="Temperature of the soft targets that a classifier learns.",
            rich_help_panel=_LEARNING,
        ),
    ] = 2.0,
    label_weight: Annotated[
        float,
        typer.Option(
            "--label-weight",
            min=0.0,
            max=1.0,
            help="What the labels in --texts count beside the model's answers; 0 reads none.",
            rich_help_panel=_LEARNING,
        ),
    ] = 0.0,
    seed: Annotated[
        int, typer.Option("--seed", min=0, help="Seed of all random choices.", rich_help_panel=_LEARNING)
    ] = 0,
    task: TaskOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Make the model itself smaller: fewer tokens, fewer layers, or a BiLSTM in its place.

    With `--vocabulary` the tokens that your texts do not use are left out. No training; the answers to these texts stay
    the same. A multilingual model that reads one language becomes about half as large.

    With `--layers` the layers that matter least are left out, and the rest learns the model's answers to `--texts`.

    With `--to bilstm` a small recurrent network learns the answers of an embedder or a classifier to `--texts`.

    Example: `trimaran shrink ./my-model -o smaller --layers 3 --texts texts.txt --budget 20m`
    """
    _require_one_way(context, vocabulary=bool(vocabulary), learning=(bool(layers), bool(to)), texts=bool(texts))
    if learning_rate is not None and not (math.isfinite(learning_rate) and learning_rate > 0):
        raise UsageError(f"--learning-rate {learning_rate} teaches nothing.", hint="Give a number above 0.")
    if vocabulary:
        from trimaran.pipeline.shrink import shrink_vocabulary

        files = [*vocabulary, *(more or ())]
        report = shrink_vocabulary(model, files, output, task_name=task or "auto", progress=progress_on_stderr())
        _tell(report.headline, report.model_dump(mode="json", by_alias=True), output, as_json=as_json)
        return
    from trimaran.pipeline.shrink_bilstm import SETTINGS, shrink_to_bilstm
    from trimaran.pipeline.shrink_layers import shrink_layers
    from trimaran.shrink.training import LearningSettings

    wanted = {
        "epochs": epochs,
        "learning_rate": learning_rate,
        "temperature": temperature,
        "label_weight": label_weight,
        "seed": seed,
    }
    begun = SETTINGS if to else LearningSettings()
    settings = begun.model_copy(update={name: value for name, value in wanted.items() if value is not None})
    shrink = shrink_to_bilstm if to else partial(shrink_layers, layers=layers or 0)
    student = shrink(
        model,
        [*(texts or ()), *(more or ())],
        output,
        task_name=task or "auto",
        data=data,
        metric=metric,
        budget_s=_seconds(budget),
        resume=resume,
        settings=settings,
        progress=progress_on_stderr(),
    )
    _tell(student.headline, student.model_dump(mode="json", by_alias=True), output, as_json=as_json)
    if not student.holds:
        # The folder is there: the person may know better. A script must not go on by itself.
        raise typer.Exit(QualityError.exit_code)


def _require_one_way(context: typer.Context, *, vocabulary: bool, learning: tuple[bool, bool], texts: bool) -> None:
    """Raises UsageError unless exactly one way of shrinking is asked for, with the options of that way only."""
    if vocabulary + sum(learning) != 1:
        raise UsageError(
            "Choose one way: --vocabulary, --layers with --texts, or --to with --texts.",
            hint="Shrink the result again to leave out both tokens and layers.",
        )
    if vocabulary:
        ignored = [f"--{name.replace('_', '-')}" for name in _LEARNING_ONLY if typed(context, name)]
        if ignored:
            raise UsageError(
                f"--vocabulary learns nothing, so it cannot use {', '.join(ignored)}.",
                hint="Leave that out, or use --layers or --to.",
            )
    elif not texts:
        raise UsageError(
            f"{'--layers' if learning[0] else '--to'} needs texts to learn from.",
            hint="Give --texts FILE: some thousand texts like those that the model will see, without labels.",
        )


def _tell(headline: str, content: dict[str, object], output: Path, *, as_json: bool) -> None:
    if as_json:
        emit(content)
        return
    typer.echo(headline)
    typer.echo(f"Next: {shlex.join(['trimaran', 'deploy', '-m', str(output)])}")


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text.strip().lower())
    if match is None or float(match[1]) <= 0:
        raise UsageError(f"--budget {text!r} is no time.", hint="Write 90s, 20m or 1h.")
    return float(match[1]) * _SECONDS[match[2]]
