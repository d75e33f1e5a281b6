"""`trimaran index`: build an index over the vectors of a collection, search it, export them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from trimaran.cli.app import app
from trimaran.cli.encode import LookupOption
from trimaran.cli.options import (
    REPOSITORY,
    JsonOption,
    PromptOption,
    ProtocolOption,
    StoreOption,
    open_store,
    progress_on_stderr,
)
from trimaran.cli.output import emit
from trimaran.core.choices import ExportTarget

index_app = typer.Typer(no_args_is_help=True, help="Vectors made by `trimaran encode`: index, search, export.")
app.add_typer(index_app, name="index", rich_help_panel="In bulk")

VectorsArgument = Annotated[Path, typer.Argument(help="A folder that `trimaran encode` finished.")]


@index_app.command("build")
def build_command(
    vectors: VectorsArgument,
    output: Annotated[Path, typer.Option("-o", "--output", help="The index file to write.")],
    type_: Annotated[
        Literal["auto", "flat", "ivf", "ivfpq", "hnsw", "binary"],
        typer.Option("--type", help="`auto` chooses by count and memory, and says why. `binary` rescores with float."),
    ] = "auto",
    recall: Annotated[
        float, typer.Option("--recall", min=0, max=1, help="Share of the true neighbours that a search must find.")
    ] = 0.95,
    memory_gb: Annotated[
        float | None,
        typer.Option("--memory", min=0.001, help="GB that the index may count on; by default all there is."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Build a Faiss index and measure its recall against exact search on vectors of its own.

    Example: `trimaran index build vectors/ -o titles.faiss --recall 0.98`
    """
    from trimaran.bulk.faiss_index import build
    from trimaran.core.environment import capture

    facts = build(
        vectors,
        output,
        kind=None if type_ == "auto" else type_,
        least_recall=recall,
        memory_bytes=int(memory_gb * 1e9) if memory_gb else capture().memory_bytes,
        progress=progress_on_stderr(),
    )
    if as_json:
        emit({"output": str(output.absolute()), **facts.model_dump(mode="json", by_alias=True)})
        return
    typer.echo(f"{output}: {facts.type} of {facts.count:,} vectors, {facts.size_bytes / 1e6:.1f} MB ({facts.reason})")
    wide = ", ".join(f"{name} {value}" for name, value in facts.search.items())
    typer.echo(
        f"recall@{facts.neighbours} {facts.recall:.4f} against exact search on {facts.queries} vectors"
        + (f", with {wide}" if wide else "")
    )


@index_app.command("search")
def search_command(
    index: Annotated[Path, typer.Argument(help="An index that `trimaran index build` wrote.")],
    model: Annotated[str, typer.Argument(metavar="NAME|ARTIFACT", help="The model that made the vectors.")],
    texts: Annotated[list[str], typer.Argument(help="What to look for.")],
    k: Annotated[int, typer.Option("-k", min=1, help="How many to show for each text.")] = 10,
    texts_too: Annotated[
        bool,
        typer.Option("--texts/--no-texts", help="Read the texts that were found from the files that were encoded."),
    ] = True,
    hybrid: Annotated[
        bool,
        typer.Option("--hybrid", help="Score the nearest again by all outputs of a hybrid model such as bge-m3."),
    ] = False,
    url: Annotated[
        str | None,
        typer.Option("--url", help="Ask the served model NAME at host:port instead of opening the artifact."),
    ] = None,
    protocol: ProtocolOption = "grpc",
    prompt: PromptOption = None,
    repository: LookupOption = REPOSITORY,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find the texts of an index that are nearest to each text: score, id, text.

    Example: `trimaran index search titles.faiss minilm "boats with three hulls" -k 5`
    """
    from trimaran.bulk.hybrid_search import CANDIDATES, rescored
    from trimaran.bulk.search import SavedIndex
    from trimaran.pipeline.index_search import vectors_by_name, vectors_from_server

    opened = SavedIndex(index)
    if url is not None:
        queries = vectors_from_server(url, model, texts, protocol=protocol, prompt=prompt, hybrid=hybrid)
    else:
        queries = vectors_by_name(
            model, texts, prompt=prompt, store=open_store(store), repository=repository, hybrid=hybrid
        )
    if queries.artifact != opened.facts.artifact:
        progress_on_stderr().note(
            f"The index was made with {opened.facts.model} {opened.facts.artifact[:12]}, and {model} is "
            f"{queries.artifact[:12] or 'not one of ours'}: scores may not mean the same."
        )
    answers = opened.search(queries.vectors, k * CANDIDATES if hybrid else k)
    if hybrid:
        answers = [hits[:k] for hits in rescored(Path(opened.facts.vectors), queries.answers, answers)]
    if texts_too:
        answers, reason = opened.with_texts(answers)
        if reason:
            progress_on_stderr().note(f"The texts are not shown. {reason}")
    if as_json:
        emit(
            {
                "index": str(index.absolute()),
                "answers": [
                    {"text": text, "hits": [hit.model_dump(exclude_none=True) for hit in hits]}
                    for text, hits in zip(texts, answers, strict=True)
                ],
            }
        )
        return
    for text, hits in zip(texts, answers, strict=True):
        if len(texts) > 1:
            typer.echo(text)
        for hit in hits:
            shown = " ||| ".join(hit.text) if isinstance(hit.text, tuple) else hit.text
            typer.echo("\t".join([f"{hit.score:.4f}", str(hit.id), *([" ".join(shown.split())] if shown else [])]))


@index_app.command("export")
def export_command(
    vectors: VectorsArgument,
    target: Annotated[ExportTarget, typer.Option("--to", help="Whose bulk files to write.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="A folder that is not there yet.")],
    name: Annotated[str, typer.Option("--name", help="The collection, or the index, to import into.")] = "vectors",
    as_json: JsonOption = False,
) -> None:
    """Write the vectors as files for a bulk import, with the schema that the import needs first.

    Example: `trimaran index export vectors/ --to milvus -o milvus/`
    """
    from trimaran.bulk.exports import export

    done = export(vectors, output, target=target, name=name, progress=progress_on_stderr())
    if as_json:
        emit(done.model_dump(mode="json"))
    else:
        typer.echo(
            f"{done.output}: {done.rows:,} rows for {done.target} in {', '.join(done.files[:4])}"
            + (", …" if len(done.files) > 4 else "")
        )
