"""Bulk encoding against the engine's own throughput: `python benchmarks/bulk.py ARTIFACT -o result.json`.

The same artifact works through the same texts twice. Once as an engine alone, on tokens and batches made beforehand:
the most that it can do with the threads of the bench. Once as `trimaran encode`, from files to Parquet. Both are
measured in turns, so that a slow moment of the machine hits both. Memory is the sum over all processes of the run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from experiment import finish, options, watched

from trimaran.core.store import Store, default_home
from trimaran.judging.judgement import WIDEST_FIRST

SIZES = (20_000, 200_000)
LEAST_SHARE = 0.90
MOST_MEMORY_BYTES = 2_000_000_000
# The peak of the largest run over that of the smallest: memory does not grow with the number of texts.
MOST_GROWTH = 1.1


def short_texts(path: Path | None, words: int) -> list[str]:
    """The first column of the file, cut to so many words; the shipped texts where there is no file."""
    from trimaran.core.corpus import shipped_texts

    if path is None or not path.is_file():
        texts = [*shipped_texts("calibration"), *shipped_texts("judging")]
    else:
        texts = [line.split("\t")[0] for line in path.read_text(encoding="utf-8").splitlines()]
    return [" ".join(text.split()[:words]) if words else text for text in texts if text.strip()]


def engine_alone(reference: str, texts_file: str, rows: str, threads: int, seconds: float) -> dict[str, float]:
    """Rows and tokens a second of nothing but the engine's calls, over windows drawn from the same texts."""
    from trimaran.bulk.run import PART_ROWS
    from trimaran.core.backends import open_session
    from trimaran.core.corpus import encoder_of
    from trimaran.runtime.text import batch_of, groups_of

    artifact = Store(default_home() / "store").open(reference)
    os.environ.update(artifact.execution_environment)
    texts = json.loads(Path(texts_file).read_text(encoding="utf-8"))[:PART_ROWS]
    encoder = encoder_of(artifact)
    tokens = encoder.rows(texts)
    groups = list(groups_of([len(row.ids) for row in tokens], rows, artifact.profile.batch.maximum))
    batches = [
        (batch_of(encoder, [tokens[i] for i in group], rows), len(group), sum(len(tokens[i].ids) for i in group))
        for group in groups
    ]
    # Short and long batches mixed, so that stopping early leaves out neither.
    batches = batches[::7] + [batch for index, batch in enumerate(batches) if index % 7]
    with open_session(artifact, threads=threads) as session:
        for inputs, _, _ in batches[:20]:
            session.infer(inputs)
        begun_s = time.perf_counter()
        done = done_tokens = 0
        while time.perf_counter() - begun_s < seconds:
            for inputs, size, count in batches:
                session.infer(inputs)
                done += size
                done_tokens += count
        spent_s = time.perf_counter() - begun_s
    return {"rows_per_s": done / spent_s, "tokens_per_s": done_tokens / spent_s}


def in_child(*arguments: object) -> Any:
    command = [sys.executable, __file__, "--engine-alone", *map(str, arguments)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


def encoded(reference: str, source: Path, output: Path, rows: str) -> dict[str, Any]:
    """One run of the command."""
    run = watched("encode", reference, "--input", str(source), "--output", str(output), "--rows", rows, "--json")
    manifest = run.answer
    seconds = manifest["timing"]["seconds"]
    return {
        "rows": manifest["rows_written"],
        "tokens": manifest["tokens"],
        # From the first look at the input, opening the engine included; `wall_s` includes the interpreter's start.
        "seconds": seconds,
        "wall_s": run.seconds,
        "rows_per_s": manifest["rows_written"] / seconds,
        "tokens_per_s": manifest["tokens"] / seconds,
        "peak_memory_bytes": run.peak_bytes,
        "lanes": manifest["lanes"],
    }


def main() -> int:
    if sys.argv[1:2] == ["--engine-alone"]:
        reference, texts_file, rows, threads, seconds = sys.argv[2:]
        print(json.dumps(engine_alone(reference, texts_file, rows, int(threads), float(seconds))))
        return 0
    parser = options(__doc__)
    parser.add_argument("artifact", help="name or digest in the store")
    parser.add_argument("--texts", type=Path, help="a .tsv whose first column is the text; else the shipped texts")
    parser.add_argument("--words", type=int, default=12, help="cut texts to so many words; 0 leaves them whole")
    parser.add_argument("--rows", default="packed", choices=WIDEST_FIRST)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--engine-seconds", type=float, default=20.0)
    asked = parser.parse_args()

    from trimaran.core.environment import usable_cores

    texts = short_texts(asked.texts, asked.words)
    threads = usable_cores()
    results = []
    with tempfile.TemporaryDirectory() as folder:
        texts_file = Path(folder) / "texts.json"
        texts_file.write_text(json.dumps(texts), encoding="utf-8")
        for size in asked.sizes:
            source = Path(folder) / f"{size}.txt"
            with source.open("w", encoding="utf-8") as stream:
                stream.writelines(texts[index % len(texts)] + "\n" for index in range(size))
            before = in_child(asked.artifact, texts_file, asked.rows, threads, asked.engine_seconds)
            run = encoded(asked.artifact, source, Path(folder) / f"out-{size}", asked.rows)
            after = in_child(asked.artifact, texts_file, asked.rows, threads, asked.engine_seconds)
            # Tokens, not rows: the lengths in the engine's window are not quite those of all texts.
            engine = (before["tokens_per_s"] + after["tokens_per_s"]) / 2
            results.append({**run, "engine": [before, after], "share_of_engine": run["tokens_per_s"] / engine})
            print(f"{size:,} rows: share {results[-1]['share_of_engine']:.3f} of the engine alone", flush=True)
    peaks = [result["peak_memory_bytes"] for result in results]
    holds = {
        "flat": max(peaks) <= MOST_GROWTH * min(peaks),
        "share": all(result["share_of_engine"] >= LEAST_SHARE for result in results),
        "memory": all(peak < MOST_MEMORY_BYTES for peak in peaks),
    }
    result = {
        "artifact": Store(default_home() / "store").open(asked.artifact).directory.name,
        "rows": asked.rows,
        "threads": threads,
        "words": asked.words,
        "texts": len(texts),
        "results": results,
        "holds": holds,
    }
    return finish(result, asked.output)


if __name__ == "__main__":
    sys.exit(main())
