"""What `trimaran.load` costs beside the code that the server runs: both ask one open engine, in turns.

    python benchmarks/in_process.py model_repository minilm -o benchmarks/results/in-process.json

The bare path is what the text stage does inside Triton: it notes which texts are cut, answers them, and makes the
tensor. The public path is `model.encode`. They answer the
same texts in the same process: one short text, one long text, and 256 texts of mixed length. Exit 1 when the public
path takes more than 3 % longer. Run it on an otherwise idle machine.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from experiment import finish, options

import trimaran
from trimaran.core.corpus import shipped_texts
from trimaran.judging.stats import speedup
from trimaran.runtime.tasks import served_task

MOST = 1.03
# Calls of each path in a round: many of the short ones, because one call is as short as the clock's noise.
CALLS = {"one short text": 40, "one long text": 12, "256 texts": 2}


def text_sets() -> dict[str, list[str]]:
    texts = sorted(shipped_texts("judging"), key=len)
    return {
        "one short text": [texts[len(texts) // 4]],
        "one long text": [" ".join(texts[:40])],
        "256 texts": texts[:: max(1, len(texts) // 256)][:256],
    }


def rounds_of(paths: Sequence[Callable[[], Any]], *, rounds: int, calls: int) -> list[tuple[tuple[int, ...], ...]]:
    """Nanoseconds of each call, by path and round. The paths change places from call to call."""
    samples: list[list[tuple[int, ...]]] = [[] for _ in paths]
    for _ in range(rounds):
        taken: list[list[int]] = [[] for _ in paths]
        for call in range(calls):
            for index in (0, 1) if call % 2 else (1, 0):
                begun_ns = time.perf_counter_ns()
                paths[index]()
                taken[index].append(time.perf_counter_ns() - begun_ns)
        for index, nanoseconds in enumerate(taken):
            samples[index].append(tuple(nanoseconds))
    return [tuple(path) for path in samples]


def main() -> int:
    parser = options(__doc__, served=True)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--threads", type=int, default=None)
    asked = parser.parse_args()
    rows: dict[str, dict[str, Any]] = {}
    with trimaran.load(asked.model, repository=asked.repository, threads=asked.threads) as model:
        answering = model._opened().answering
        row = served_task(model.task)
        for name, texts in text_sets().items():

            def bare(texts: list[str] = texts) -> np.ndarray:
                with answering.encoder.noting_rows():
                    return row.tensors(row.answer(answering, texts))["EMBEDDING"]

            def public(texts: list[str] = texts) -> np.ndarray:
                return model.encode(texts)

            np.testing.assert_array_equal(bare(), public())
            rounds_of((bare, public), rounds=2, calls=CALLS[name])
            bare_ns, public_ns = rounds_of((bare, public), rounds=asked.rounds, calls=CALLS[name])
            ratio = speedup(public_ns, bare_ns)
            rows[name] = {
                "texts": len(texts),
                "public_over_bare": ratio.median,
                "interval": [ratio.low, ratio.high],
                "bare_ms": float(np.median(np.concatenate(bare_ns))) / 1e6,
                "public_ms": float(np.median(np.concatenate(public_ns))) / 1e6,
                "bare_ns": bare_ns,
                "public_ns": public_ns,
            }
            print(f"{name}: {ratio.median:.4f} ({ratio.low:.4f}–{ratio.high:.4f})", file=sys.stderr)
        made = model.manifest
    result = {
        "schema": 1,
        "what": "time of `trimaran.load(…).encode` over the time of the function that the server calls",
        "model": asked.model,
        "engine": f"{made.backend} {made.precision}",
        "rows": rows,
        "claims": {f"{name} within 3 %": row["public_over_bare"] <= MOST for name, row in rows.items()},
    }
    return finish(result, asked.output, hidden=("rows",))


if __name__ == "__main__":
    sys.exit(main())
