"""Commands around the vectors of a collection: build an index, search it, export them."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from trimaran.cli import app
from trimaran.cli.deploy import JsonOption, StoreOption, emit, progress_now, shelf_at
from trimaran.cli.encode import RepositoryOption
from trimaran.cli.serve import Protocol

index_app = typer.Typer(no_args_is_help=True, help="Vectors made by `trimaran encode`: index, search, export.")
app.add_typer(index_app, name="index", rich_help_panel="In bulk")

VectorsArgument = Annotated[Path, typer.Argument(help="A folder that `trimaran encode` finished.")]


class IndexType(StrEnum):
    auto = "auto"
    flat = "flat"
    ivf = "ivf"
    ivfpq = "ivfpq"
    hnsw = "hnsw"


class Target(StrEnum):
    milvus = "milvus"
    elasticsearch = "elasticsearch"


@index_app.command("build")
def build_command(
    vectors: VectorsArgument,
    output: Annotated[Path, typer.Option("-o", "--output", help="The index file to write.")],
    type_: Annotated[
        IndexType, typer.Option("--type", help="`auto` chooses by count and memory, and says why.")
    ] = IndexType.auto,
    recall: Annotated[
        float, typer.Option("--recall", min=0, max=1, help="Share of the true neighbours that a search must find.")
    ] = 0.95,
    memory_gb: Annotated[
        float | None,
        typer.Option("--memory", min=0.001, help="GB that the index may count on; by default all there is."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Build a Faiss index and measure its recall against exact search on vectors of its own."""
    from trimaran.bulk.faiss_index import build
    from trimaran.bulk.index_choice import INDEX_KINDS
    from trimaran.core.environment import capture

    facts = build(
        vectors,
        output,
        kind=next((name for name in INDEX_KINDS if name == type_.value), None),
        least_recall=recall,
        memory_bytes=int(memory_gb * 1e9) if memory_gb else capture().memory_bytes,
        progress=progress_now(),
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
    url: Annotated[
        str | None,
        typer.Option("--url", help="Ask the served model NAME at host:port instead of opening the artifact."),
    ] = None,
    protocol: Annotated[Protocol, typer.Option("--protocol", help="How to talk to the server.")] = Protocol.grpc,
    prompt: Annotated[
        str | None, typer.Option("--prompt", help="A prompt of the model, by name, such as `query`.")
    ] = None,
    repository: RepositoryOption = Path("model_repository"),
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find the nearest of an index to each text."""
    from trimaran.bulk.search import SavedIndex, vectors_by_artifact
    from trimaran.bulk.worker import EncodeOptions

    opened = SavedIndex(index)
    if url is not None:
        from trimaran.serving.client import Client

        with Client(url, protocol=protocol.value) as client:
            asked = client.embed(model, texts, prompt=prompt)
            digest = client.model(model).parameters.get("artifact", "")
    else:
        from trimaran.pipeline.deployed import deployed

        found = deployed(model, store=shelf_at(store), repository=repository)
        asked = vectors_by_artifact(
            found.artifact, EncodeOptions(rows=found.rows, ask={} if prompt is None else {"prompt": prompt}), texts
        )
        digest = found.artifact.digest
    if digest != opened.facts.artifact:
        progress_now().note(
            f"The index was made with {opened.facts.model} {opened.facts.artifact[:12]}, and {model} is "
            f"{digest[:12] or 'not one of ours'}: scores may not mean the same."
        )
    answers = opened.search(asked, k)
    if as_json:
        emit(
            {
                "index": str(index.absolute()),
                "answers": [
                    {"text": text, "hits": [hit.model_dump() for hit in hits]}
                    for text, hits in zip(texts, answers, strict=True)
                ],
            }
        )
        return
    for text, hits in zip(texts, answers, strict=True):
        if len(texts) > 1:
            typer.echo(text)
        for hit in hits:
            typer.echo(f"{hit.score:.4f}\t{hit.id}")


@index_app.command("export")
def export_command(
    vectors: VectorsArgument,
    target: Annotated[Target, typer.Option("--to", help="Whose bulk files to write.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="A folder that is not there yet.")],
    name: Annotated[str, typer.Option("--name", help="The collection, or the index, to import into.")] = "vectors",
    as_json: JsonOption = False,
) -> None:
    """Write the vectors as files for a bulk import, with the schema that the import needs first."""
    from trimaran.bulk.exports import export

    done = export(vectors, output, target=target.value, name=name, progress=progress_now())
    if as_json:
        emit(done.model_dump(mode="json"))
    else:
        typer.echo(
            f"{done.output}: {done.rows:,} rows for {done.target} in {', '.join(done.files[:4])}"
            + (", …" if len(done.files) > 4 else "")
        )
