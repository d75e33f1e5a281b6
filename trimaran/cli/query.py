"""`trimaran query`: asks a served model."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

from trimaran.cli.app import app
from trimaran.cli.options import JsonOption, PromptOption, ProtocolOption
from trimaran.cli.output import emit

# Columns of answers that are lists of objects, in the order of reading.
_COLUMNS = ("answer", "word", "entity_group", "entity", "token_str", "sequence", "score", "start", "end")


@app.command(rich_help_panel="Serve")
def query(
    name: Annotated[str, typer.Argument(help="The model to call.")],
    texts: Annotated[
        list[str] | None,
        typer.Argument(help="What to ask, as the model's task wants it; `-` or nothing reads lines from stdin."),
    ] = None,
    top_k: Annotated[
        int | None, typer.Option("--top-k", min=1, help="How many answers a text gets, for tasks that rank them.")
    ] = None,
    url: Annotated[str, typer.Option("--url", help="host:port; by default the running server's.")] = "",
    protocol: ProtocolOption = "grpc",
    timeout_s: Annotated[float, typer.Option("--timeout", min=0.001, help="Seconds all of it may take.")] = 60.0,
    labels: Annotated[
        list[str] | None,
        typer.Option(
            "--label",
            help="For a zero-shot model; again for more. For a fill-mask model with words: `label=word,word`.",
        ),
    ] = None,
    template: Annotated[
        str | None,
        typer.Option(
            "--template",
            help="For a zero-shot model: a sentence with {} for a label. For a fill-mask model: one with {} for the "
            "text and {mask}.",
        ),
    ] = None,
    prompt: PromptOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask a served model and print its answers.

    Question answering: `NAME "question" "context"`. For several, type each as `"question ||| context"`.

    Reranking: `NAME "query" "document" "document" …`

    Zero-shot classification: `NAME "text" … --label weather --label money`

    Classification by label words, of a fill-mask model:
    `NAME "text" … --label sport=football,tennis --label money=banks --template "{} It is about {mask}."`

    Multiple choice: `NAME "text" "choice" "choice" …`. Next sentence: `NAME "first" "second"`.

    All others: `NAME "text" "text" …`. Models for embedding, feature extraction and text classification read
    `"first ||| second"` as a pair.

    Lines from stdin: `trimaran query NAME < texts.txt`

    Example: `trimaran query minilm "some text" "another text"`
    """
    from trimaran.pipeline.live import live_url
    from trimaran.serving.client import Client
    from trimaran.serving.client.asking import ask

    arguments = _arguments(texts or [])
    with Client(url or live_url(name, protocol), protocol=protocol, timeout_s=timeout_s) as client:
        outputs = client.model(name).outputs
        questions, answers = ask(client, name, arguments, labels or [], prompt=prompt, top_k=top_k, template=template)
        truncated = client.truncated_texts
    if as_json:
        emit({"name": name, "answers": _plain(answers), "truncated_texts": truncated})
        return
    for text, answer in zip(questions, answers, strict=True):
        if "FILLINGS" in outputs and labels:
            typer.echo(f"{text}\t{_ranking(answer)}")
        elif {"ENTITIES", "ANSWERS", "FILLINGS"} & set(outputs):
            _print_table(text, answer)
        else:
            typer.echo(f"{text}\t{_line(answer, outputs)}")


def _arguments(texts: list[str]) -> list[str]:
    from trimaran.core.errors import UsageError

    if texts and texts != ["-"]:
        return texts
    lines = [] if sys.stdin.isatty() else [line.rstrip("\n") for line in sys.stdin]
    if not (filled_lines := [line for line in lines if line]):
        raise UsageError("Nothing was asked.", hint="Type texts after the name, or send lines to stdin.")
    return filled_lines


def _print_table(text: str, answer: Any) -> None:
    """The text on a line of its own, then entities, spans or fillings, one a row. Several masks have a table each."""
    from rich.console import Console
    from rich.table import Table

    if answer and isinstance(answer[0], list):
        for mask in answer:
            _print_table(text, mask)
        return
    columns = [name for name in _COLUMNS if answer and name in answer[0]]
    typer.echo(text if answer else f"{text}: nothing found")
    table = Table(*columns, box=None, header_style="dim")
    for row in answer:
        table.add_row(*(f"{row[name]:.4f}" if name == "score" else str(row[name]) for name in columns))
    if answer:
        Console(highlight=False, markup=False).print(table)


def _line(answer: Any, outputs: Any) -> str:
    if "VECTOR_TOKENS" in outputs:
        heaviest = zip(answer.sparse.tokens[:6], answer.sparse.weights[:6], strict=True)
        vectors = answer.colbert.vectors
        return (
            f"{_numbers(answer.dense)}; {_ranking(heaviest) or 'no weighted token'}; "
            f"{len(vectors)} token vectors of {vectors.shape[1]}"
        )
    if "EMBEDDING" in outputs:
        return _numbers(answer)
    if "SCORES" in outputs or "PROBABILITIES" in outputs:
        return _ranking(answer)
    return json.dumps(_plain(answer), ensure_ascii=False)


def _numbers(vector: Any) -> str:
    return f"{len(vector)} numbers: {', '.join(f'{value:.4f}' for value in vector[:6])}, …"


def _ranking(answer: Any) -> str:
    return ", ".join(f"{label} {score:.4f}" for label, score in answer)


def _plain(answer: Any) -> Any:
    """Numbers, strings, lists and objects, as JSON has them."""
    if hasattr(answer, "tolist"):
        return answer.tolist()
    if hasattr(answer, "_asdict"):
        return {key: _plain(value) for key, value in answer._asdict().items()}
    return [_plain(item) for item in answer] if isinstance(answer, (list, tuple)) else answer
