"""Decoders have activations in the thousands at their first token: a scale for the whole tensor loses all others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.export import zoo
from tests.export.exported import LONG, QUIET, exported
from trimaran.core.artifact import Artifact
from trimaran.core.backends import open_session
from trimaran.core.corpus import encoder_of, shipped_texts
from trimaran.core.distances import cosine_distances
from trimaran.core.store import Store
from trimaran.export.locate import locate
from trimaran.quantize.candidates import candidate
from trimaran.quantize.int8.saturation import largest_weight
from trimaran.quantize.optimize import optimize
from trimaran.quantize.settings import MakerSettings
from trimaran.quantize.stage import to_precision

FIRST = "<s>"
SETTINGS = MakerSettings(
    calibration=shipped_texts("calibration")[:40], gates=(("mean_cosine_distance", "<=", 1.2e-3),), budget_s=3600
)


def _folder(folder: Path, size: float) -> Path:
    """A Qwen3 whose texts begin with a token that alone makes one activation of about `size` in the first layer."""
    import torch
    import transformers
    from tokenizers import processors

    zoo.saved_model(folder, "qwen3", "embedding")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.add_special_tokens({"bos_token": FIRST})
    first, end = tokenizer.convert_tokens_to_ids([FIRST, tokenizer.eos_token])
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{FIRST} $A {tokenizer.eos_token}", special_tokens=[(FIRST, first), (tokenizer.eos_token, end)]
    )
    tokenizer.save_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder)
    model.resize_token_embeddings(len(tokenizer))
    with torch.no_grad():
        # Channel 0 belongs to the first token: no other token and no attention writes into it.
        table, layers = model.get_input_embeddings().weight, model.layers
        table[:, 0] = 0
        table[first] = 0
        table[first, 0] = 1
        for layer in layers:
            layer.self_attn.o_proj.weight[0] = 0
            layer.mlp.down_proj.weight[0] = 0
        mlp = layers[0].mlp
        # Behind the norm channel 0 is the square root of the width; gate times up is the square of what follows.
        each = float(np.sqrt(size / table.shape[1]))
        for weight in (mlp.gate_proj.weight, mlp.up_proj.weight):
            weight[0] = 0
            weight[0, 0] = each
        mlp.down_proj.weight[:, 0] = 0
    model.save_pretrained(folder)
    return folder


def _vectors(artifact: Artifact) -> np.ndarray:
    encoder = encoder_of(artifact)
    with open_session(artifact, threads=1) as session:
        found = [
            session.infer(encoder.batch([row]))["embedding"] for row in encoder.rows(shipped_texts("judging")[:24])
        ]
    return np.concatenate(found)


@pytest.mark.slow
def test_massive_activations_ruin_a_scale_for_the_whole_tensor_and_not_the_searched_int8(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    lost: dict[tuple[str, float], float] = {}
    for size in (1.0, 3000.0):
        graph = exported(locate(str(_folder(tmp_path / f"{size:g}", size))), tmp_path, profile=LONG)
        fused = optimize(graph, store=store, progress=QUIET)
        wanted = _vectors(graph)
        for name in ("onnxruntime-int8-dynamic", "onnxruntime-int8-static"):
            made = to_precision(fused, candidate(name), SETTINGS, store=store, progress=QUIET)
            lost[name, size] = float(np.mean(cosine_distances(wanted, _vectors(made))))
    dynamic, searched = (
        [lost[f"onnxruntime-int8-{name}", size] for size in (1.0, 3000.0)] for name in ("dynamic", "static")
    )
    # Without VNNI, 8-bit weights saturate, so dynamic INT8 loses much with small activations, too.
    factor = 4 if largest_weight("onnxruntime") == 127 else 1.5
    assert dynamic[1] > factor * dynamic[0], lost
    assert dynamic[1] > 8 * searched[1], lost
    assert max(searched) <= 1.2e-3, lost
