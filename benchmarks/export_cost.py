"""What an export costs: time, and memory summed over the command's processes, for seeded models of real sizes.

`python benchmarks/export_cost.py bert-base` writes `benchmarks/results/export-bert-base.json`. The checkpoint is made
anew in a temporary folder (its numbers are random, its sizes are not); then `trimaran export` runs as a user runs it.
"""

from __future__ import annotations

import json
import multiprocessing
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from experiment import RESULTS, finish, options, watched


class SizedExport(NamedTuple):
    """A BERT of these sizes, the flags of its export, and the candidates that are then made of it."""

    sizes: dict[str, int]
    flags: tuple[str, ...] = ()
    candidates: tuple[str, ...] = ()


MODELS = {
    "bert-base": SizedExport({}),
    # More than 2 GB of weights, which one protobuf cannot hold: a wide table and a single layer.
    "large": SizedExport(
        {"vocab_size": 530_000, "hidden_size": 1024, "num_attention_heads": 16, "num_hidden_layers": 1},
        ("--batch", "1", "2", "4", "--sequence", "1", "16", "64"),
        ("onnxruntime-fused", "onnxruntime-int8-dynamic", "openvino-fp32", "openvino-int8-weights"),
    ),
}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("models", nargs="*", help=f"Of {', '.join(MODELS)}; all when none is named.")
    parser.add_argument("--scratch", type=Path, default=None, help="Where the checkpoint and the store are made.")
    asked = parser.parse_args()
    for name in asked.models or list(MODELS):
        with tempfile.TemporaryDirectory(dir=asked.scratch) as folder:
            result = cost_of(name, Path(folder))
        finish(result, asked.output or RESULTS / f"export-{name}.json")


def cost_of(name: str, folder: Path) -> dict[str, Any]:
    # A process of its own, so that this one stays small.
    making = multiprocessing.get_context("spawn").Process(target=save, args=(name, str(folder / "model")))
    making.start()
    making.join()
    checkpoint = (folder / "model" / "model.safetensors").stat().st_size
    model = MODELS[name]
    stages: dict[str, dict[str, Any]] = {}

    def stage(title: str, *arguments: str) -> str:
        """Runs one command, keeps what it cost, and gives the artifact that it made ("" when it failed)."""
        run = watched(*arguments, "--store", str(folder / "store"), "--json")
        words = run.stderr.strip().splitlines()
        stages[title] = {
            "exit_code": run.exit_code,
            "said": words[-1] if words and run.exit_code == 0 else " ".join(words),
            "seconds": round(run.seconds, 1),
            "cpu_seconds": round(run.cpu_seconds, 1),
            "peak_bytes": run.peak_bytes,
            "peak_after_s": round(run.peak_after_s, 1),
            "peak_over_checkpoint": round(run.peak_bytes / checkpoint, 2),
        }
        return str(json.loads(run.stdout)["artifact"]) if run.exit_code == 0 else ""

    exported = stage("export", "export", "-m", str(folder / "model"), "--task", "embedding", *model.flags)
    optimized = stage("optimize", "optimize", exported) if model.candidates else ""
    for candidate in model.candidates:
        parent = optimized if candidate.startswith("onnxruntime") else exported
        stage(candidate, "quantize", parent, "--to", candidate)
    return {"model": name, "checkpoint_bytes": checkpoint, "stages": stages}


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


if __name__ == "__main__":
    main()
