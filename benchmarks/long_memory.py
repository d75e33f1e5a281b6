"""Memory and processor time of one long text: attention whole and in blocks, in each engine.

    python benchmarks/long_memory.py [-o benchmarks/results/long-memory.json]

Four layers of ModernBERT-base's width with seeded weights: layers run one after the other and share their memory, so
more layers take longer and hold only their weights beside. Each call runs in a fresh process on one thread; memory is
what its largest resident set has beyond that of the opened engine. Exit 1 when a claim does not hold.
"""

from __future__ import annotations

import multiprocessing
import resource
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from experiment import RESULTS, finish, options
from sized_models import PACKAGE, made, save_tokenizer

from trimaran.core.artifact import load_artifact
from trimaran.core.backends import open_session
from trimaran.judging.probe import resident_bytes

OUTPUT = RESULTS / "long-memory.json"
LENGTHS = (512, 2048, 8192)
# By name: the stage that makes it of the export; "" is the export itself, whose attention is whole.
ENGINES = {
    "onnxruntime, whole": "",
    "onnxruntime, in blocks": "onnxruntime-fp32",
    "openvino": "openvino-fp32",
}


def save_model(folder: Path) -> Path:
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.ModernBertConfig(num_hidden_layers=4, vocab_size=30_522, pad_token_id=0)
    transformers.ModernBertModel(config).eval().save_pretrained(folder)
    save_tokenizer(folder)
    return folder


def long_call(folder: str, length: int) -> dict[str, Any]:
    artifact = load_artifact(Path(folder))
    inputs = {
        "input_ids": np.random.default_rng(0).integers(1000, 20_000, (1, length)),
        "attention_mask": np.ones((1, length), np.int64),
    }
    with open_session(artifact, threads=1) as session:
        session.infer({name: array[:, :8] for name, array in inputs.items()})
        opened = resident_bytes()
        begun_s = time.process_time()
        answers = session.infer(inputs)
        cpu_s = time.process_time() - begun_s
        kept = resident_bytes() - opened
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "call_bytes": peak - opened,
        "kept_bytes": kept,
        "cpu_seconds": round(cpu_s, 2),
        "finite": all(bool(np.isfinite(array).all()) for array in answers.values()),
    }


def measured(artifacts: Mapping[str, Path]) -> dict[str, dict[str, Any]]:
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as fresh:
        return {
            name: {str(length): fresh.apply(long_call, (str(folder), length)) for length in LENGTHS}
            for name, folder in artifacts.items()
        }


def main() -> int:
    asked = options(__doc__, output=OUTPUT).parse_args()
    with tempfile.TemporaryDirectory(prefix="trimaran-long-") as scratch:
        folder = Path(scratch)
        store = ("--store", str(folder / "store"))
        profile = ("--batch", "1", "1", "1", "--sequence", "1", "128", str(LENGTHS[-1]))
        model = save_model(folder / "model")
        graph = made("export", "-m", str(model), "--task", "embedding", *profile, *store)
        artifacts = {
            name: made("quantize", str(graph), "--to", stage, *store) if stage else graph
            for name, stage in ENGINES.items()
        }
        engines = measured(artifacts)
    longest = str(LENGTHS[-1])
    whole, blocks = (engines[name][longest] for name in list(ENGINES)[:2])
    result = {
        "model": f"ModernBERT, 4 layers of 768, 12 heads; tokenizer of {PACKAGE}",
        "engines": engines,
        "claims": {
            "blocks take a quarter of the memory of whole attention, or less": 4 * blocks["call_bytes"]
            <= whole["call_bytes"],
            "blocks take no more processor time": blocks["cpu_seconds"] <= 1.05 * whole["cpu_seconds"],
            "every answer is finite": all(call["finite"] for engine in engines.values() for call in engine.values()),
        },
    }
    return finish(result, asked.output)


if __name__ == "__main__":
    sys.exit(main())
