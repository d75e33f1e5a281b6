"""What an export costs: time, and memory summed over the command's processes, for seeded models of real sizes.

`python benchmarks/export_cost.py bert-base` writes `benchmarks/results/export-bert-base.json`. The checkpoint is made
anew in a temporary folder (its numbers are random, its sizes are not); then `trimaran export` runs as a user runs it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from trimaran.serving.triton import processes

RESULTS = Path(__file__).parent / "results"
EVERY_S = 0.2


class Model(NamedTuple):
    """A BERT of these sizes, the flags of its export, and the candidates that are then made of it."""

    sizes: dict[str, int]
    flags: tuple[str, ...] = ()
    candidates: tuple[str, ...] = ()


MODELS = {
    "bert-base": Model({}),
    # More than 2 GB of weights, which one protobuf cannot hold: a wide table and a single layer.
    "large": Model(
        {"vocab_size": 530_000, "hidden_size": 1024, "num_attention_heads": 16, "num_hidden_layers": 1},
        ("--batch", "1", "2", "4", "--sequence", "1", "16", "64"),
        ("onnxruntime-fused", "onnxruntime-int8-dynamic", "openvino-fp32", "openvino-int8-weights"),
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", help=f"Of {', '.join(MODELS)}; all when none is named.")
    parser.add_argument("--scratch", type=Path, default=None, help="Where the checkpoint and the store are made.")
    given = parser.parse_args()
    for name in given.models or list(MODELS):
        with tempfile.TemporaryDirectory(dir=given.scratch) as folder:
            result = cost_of(name, Path(folder))
        path = RESULTS / f"export-{name}.json"
        path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
        print(f"{path}\n{json.dumps(result['stages'], indent=2)}")


def cost_of(name: str, folder: Path) -> dict[str, Any]:
    from trimaran.core.environment import capture

    # A process of its own, so that this one stays small.
    made = multiprocessing.get_context("spawn").Process(target=save, args=(name, str(folder / "model")))
    made.start()
    made.join()
    checkpoint = (folder / "model" / "model.safetensors").stat().st_size
    store = ("--store", str(folder / "store"), "--json")
    model = MODELS[name]
    source = ("-m", str(folder / "model"), "--task", "embedding")
    stages = {"export": watched("export", *source, *model.flags, *store)}
    if model.candidates:
        exported = stages["export"]["artifact"]
        stages["optimize"] = watched("optimize", exported, *store)
        for candidate in model.candidates:
            parent = stages["optimize"]["artifact"] if candidate.startswith("onnxruntime") else exported
            stages[candidate] = watched("quantize", parent, "--to", candidate, *store)
    for stage in stages.values():
        stage["peak_over_checkpoint"] = round(stage["peak_bytes"] / checkpoint, 2)
        del stage["artifact"]
    return {
        "model": name,
        "checkpoint_bytes": checkpoint,
        "stages": stages,
        "environment": capture().model_dump(mode="json"),
    }


def save(name: str, folder: str) -> None:
    """A BERT with seeded weights and a vocabulary of made-up words, as a model folder."""
    import torch
    import transformers

    config = transformers.BertConfig(**MODELS[name].sizes)
    torch.manual_seed(0)
    model = transformers.BertModel(config, add_pooling_layer=False).eval()
    model.save_pretrained(folder)
    letters = "abcdefghijklmnopqrstuvwxyz0123456789.,!?'-"
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters)]
    words += [f"word{index}" for index in range(config.vocab_size - len(words))]
    tokenizer = transformers.BertTokenizer(vocab={word: index for index, word in enumerate(words)})
    tokenizer.save_pretrained(folder)


def watched(*arguments: str) -> dict[str, Any]:
    """Runs `trimaran` with these arguments: its time, the largest sum of its processes' memory, how it ended."""
    begin, cpu = time.perf_counter(), _children_cpu_s()
    samples: list[tuple[int, float]] = []
    with tempfile.TemporaryFile() as answer, tempfile.TemporaryFile() as words:
        process = subprocess.Popen([sys.executable, "-m", "trimaran", *arguments], stdout=answer, stderr=words)
        while True:
            samples.append((summed_pss(process.pid), time.perf_counter() - begin))
            try:
                process.wait(EVERY_S)
                break
            except subprocess.TimeoutExpired:
                continue
        answer.seek(0)
        words.seek(0)
        said = words.read().decode().strip().splitlines()
        found = json.loads(answer.read()) if process.returncode == 0 else {}
    peak, moment = max(samples)
    return {
        "exit_code": process.returncode,
        "said": said[-1] if said and process.returncode == 0 else " ".join(said),
        "seconds": round(time.perf_counter() - begin, 1),
        "cpu_seconds": round(_children_cpu_s() - cpu, 1),
        "peak_bytes": peak,
        "peak_after_s": round(moment, 1),
        "artifact": found.get("artifact", ""),
    }


def _children_cpu_s() -> float:
    used = os.times()
    return used.children_user + used.children_system


def summed_pss(root: int) -> int:
    """Proportional memory of a process and of all below it, pages they share counted once."""
    return processes.proportional_bytes(root) + processes.memory_bytes(root)


if __name__ == "__main__":
    main()
