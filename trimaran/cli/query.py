"""`trimaran query`: asks a served model."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from trimaran.cli.app import app
from trimaran.cli.options import JsonOption, PromptOption, ProtocolOption
from trimaran.cli.output import emit


@app.command(rich_help_panel="Serve")
def query(
    name: Annotated[str, typer.Argument(help="The model to call.")],
    texts: Annotated[list[str], typer.Argument(help="What to ask; what is wanted depends on the model's task.")],
    url: Annotated[str, typer.Option("--url", help="host:port; by default Triton's own ports.")] = "",
    protocol: ProtocolOption = "grpc",
    timeout_s: Annotated[float, typer.Option("--timeout", min=0.001, help="Seconds all of it may take.")] = 60.0,
    labels: Annotated[list[str] | None, typer.Option("--label", help="For a zero-shot model; again for more.")] = None,
    prompt: PromptOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask a served model and print its answers.

    Question answering: `NAME "question" "context"`. For several, type each as `"question ||| context"`.

    Reranking: `NAME "query" "document" "document" …`

    Zero-shot classification: `NAME "text" … --label weather --label money`

    Multiple choice: `NAME "text" "choice" "choice" …`. Next sentence: `NAME "first" "second"`.

    All others: `NAME "text" "text" …`. Models for embedding, feature extraction and text classification read
    `"first ||| second"` as a pair.

    Example: `trimaran query minilm "some text" "another text"`
    """
    from trimaran.serving.client import Client
    from trimaran.serving.client.asking import ask

    with Client(url, protocol=protocol, timeout_s=timeout_s) as client:
        outputs = client.model(name).outputs
        asked, answers = ask(client, name, texts, labels or [], prompt=prompt)
        truncated = client.truncated_texts
    if as_json:
        emit({"name": name, "answers": _plain(answers), "truncated_texts": truncated})
        return
    for text, answer in zip(asked, answers, strict=True):
        typer.echo(f"{text}\t{_line(answer, outputs)}")


def _line(answer: Any, outputs: Any) -> str:
    if "EMBEDDING" in outputs:
        return f"{len(answer)} numbers: {', '.join(f'{value:.4f}' for value in answer[:6])}, …"
    if "SCORES" in outputs or "PROBABILITIES" in outputs:
        return ", ".join(f"{label} {score:.4f}" for label, score in answer)
    return json.dumps(_plain(answer), ensure_ascii=False)


def _plain(answer: Any) -> Any:
    """Numbers, strings, lists and objects, as JSON has them."""
    if hasattr(answer, "tolist"):
        return answer.tolist()
    if hasattr(answer, "_asdict"):
        return {key: _plain(value) for key, value in answer._asdict().items()}
    return [_plain(item) for item in answer] if isinstance(answer, (list, tuple)) else answer
