"""Bulk encoding against the engine's own throughput: `python benchmarks/bulk.py ARTIFACT -o result.json`.

The same artifact works through the same texts twice: as an engine alone, on tokens and batches made beforehand (the
most that it can do, with the threads of the bench), and as `trimaran encode`, from files to Parquet. Both
are measured in turns, so that a slow moment of the machine meets both. Memory is the sum over all processes of the run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from export_cost import summed_pss

from trimaran.core.store import Store, default_home
from trimaran.judging.judgement import WIDEST_FIRST

SIZES = (20_000, 200_000)
LEAST_SHARE = 0.90
MOST_MEMORY_BYTES = 2_000_000_000
# The peak of the largest run over that of the smallest: memory is flat in the number of texts.
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
    # Short and long ones mixed, so that stopping early takes neither.
    batches = batches[::7] + [batch for place, batch in enumerate(batches) if place % 7]
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
    """One run of the command, watched: the largest sum of what its processes held at once."""
    command = [sys.executable, "-m", "trimaran", "encode", reference, "--input", str(source), "--output", str(output)]
    begun_s = time.perf_counter()
    log = output.with_suffix(".log")
    with log.open("w") as stream:
        process = subprocess.Popen(
            [*command, "--rows", rows, "--json"], stdout=subprocess.PIPE, stderr=stream, text=True
        )
    peak, stop = [0], threading.Event()

    def watch() -> None:
        while not stop.wait(0.2):
            peak[0] = max(peak[0], summed_pss(process.pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    told = process.communicate()[0]
    wall_s = time.perf_counter() - begun_s
    stop.set()
    watcher.join()
    if process.returncode:
        raise SystemExit(f"encode failed: {told}{log.read_text()}")
    manifest = json.loads(told)
    seconds = manifest["timing"]["seconds"]
    return {
        "rows": manifest["rows_written"],
        "tokens": manifest["tokens"],
        # From the first look at the input, opening the engine included; `wall_s` has the interpreter's start as well.
        "seconds": seconds,
        "wall_s": wall_s,
        "rows_per_s": manifest["rows_written"] / seconds,
        "tokens_per_s": manifest["tokens"] / seconds,
        "peak_memory_bytes": peak[0],
        "lanes": manifest["lanes"],
    }


def main() -> None:
    if sys.argv[1:2] == ["--engine-alone"]:
        reference, texts_file, rows, threads, seconds = sys.argv[2:]
        print(json.dumps(engine_alone(reference, texts_file, rows, int(threads), float(seconds))))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("artifact", help="name or digest in the store")
    parser.add_argument("-o", "--output", type=Path, required=True, help="JSON result")
    parser.add_argument("--texts", type=Path, help="a .tsv whose first column is the text; else the shipped texts")
    parser.add_argument("--words", type=int, default=12, help="cut texts to so many words; 0 leaves them whole")
    parser.add_argument("--rows", default="packed", choices=WIDEST_FIRST)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--engine-seconds", type=float, default=20.0)
    given = parser.parse_args()

    from trimaran.core.environment import capture, usable_cores

    texts = short_texts(given.texts, given.words)
    threads = usable_cores()
    results = []
    with tempfile.TemporaryDirectory() as folder:
        texts_file = Path(folder) / "texts.json"
        texts_file.write_text(json.dumps(texts), encoding="utf-8")
        for size in given.sizes:
            source = Path(folder) / f"{size}.txt"
            with source.open("w", encoding="utf-8") as stream:
                stream.writelines(texts[place % len(texts)] + "\n" for place in range(size))
            before = in_child(given.artifact, texts_file, given.rows, threads, given.engine_seconds)
            run = encoded(given.artifact, source, Path(folder) / f"out-{size}", given.rows)
            after = in_child(given.artifact, texts_file, given.rows, threads, given.engine_seconds)
            # Tokens, not rows: the window of the engine's texts has not quite the lengths of all of them.
            engine = (before["tokens_per_s"] + after["tokens_per_s"]) / 2
            results.append({**run, "engine": [before, after], "share_of_engine": run["tokens_per_s"] / engine})
            print(
                f"{size:>8,} rows: {run['rows_per_s']:,.0f} rows/s, {run['tokens_per_s']:,.0f} tokens/s, engine alone "
                f"{engine:,.0f} tokens/s, share {results[-1]['share_of_engine']:.3f}, "
                f"peak {run['peak_memory_bytes'] / 1e6:,.0f} MB",
                flush=True,
            )
    peaks = [result["peak_memory_bytes"] for result in results]
    holds = {
        "flat": max(peaks) <= MOST_GROWTH * min(peaks),
        "share": all(result["share_of_engine"] >= LEAST_SHARE for result in results),
        "memory": all(result["peak_memory_bytes"] < MOST_MEMORY_BYTES for result in results),
    }
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(
        json.dumps(
            {
                "artifact": Store(default_home() / "store").open(given.artifact).directory.name,
                "rows": given.rows,
                "threads": threads,
                "words": given.words,
                "texts": len(texts),
                "results": results,
                "holds": holds,
                "environment": capture().model_dump(mode="json"),
            },
            indent=1,
        )
        + "\n",
        encoding="utf-8",
    )
    print(holds)


if __name__ == "__main__":
    main()
