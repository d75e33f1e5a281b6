"""The encoder families that are known: one row for each model_type of transformers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from trimaran.core.choices import Exporter
from trimaran.core.errors import UsageError

EXPORTERS: tuple[Exporter, ...] = ("torchscript", "dynamo")
# The number of positions of a model whose positions are relative: it only bounds the profile.
UNBOUNDED = 1_000_000

_WITH_SEGMENTS = ("input_ids", "attention_mask", "token_type_ids")
_PLAIN = ("input_ids", "attention_mask")


@dataclass(frozen=True)
class Family:
    # The model_type of transformers.
    name: str
    # What the model reads, in the order of the exported graph.
    inputs: tuple[str, ...]
    # The pattern set of ONNX Runtime's transformer optimizer.
    fusion: str = "bert"
    # Fused nodes that the optimizer must find, as (per model, per layer). Fewer is a failed optimisation.
    fused: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    exporter: Exporter = "torchscript"
    opset: int = 17
    # Entries of the position table that no token can use: RoBERTa counts from pad_id + 1.
    reserved_positions: int = 0
    # Relative positions without a table: any length works.
    relative_positions: bool = False
    # Computes from transformers' config up to how many tokens the exported graph is exact.
    longest: Callable[[Any], int] | None = None
    pad_side: Literal["right", "left"] = "right"
    # Pre-trained to generate text: a checkpoint with that head is still taken for an embedding.
    generator: bool = False
    # Set in the config before the model is loaded.
    overrides: Mapping[str, Any] = field(default_factory=dict)
    # transformers' Auto class -> the class to load instead.
    classes: Mapping[str, str] = field(default_factory=dict)
    # Auto classes that transformers has and that are not exported, with the reason.
    refused_heads: Mapping[str, str] = field(default_factory=dict)
    # Config switches that are refused if they are on, with the reason.
    unsupported: Mapping[str, str] = field(default_factory=dict)
    # Whether transformers has fused attention for the family.
    sdpa: bool = True
    # The section of config.json that holds the sizes of the encoder; "" if they are on the first level.
    section: str = ""
    # The family that it was built after. Its tests are then one for each head, the others for each task.
    after: str = ""
    # A remark for docs/families.md.
    note: str = ""


def _full_attention_reach(config: Any) -> int:
    """Up to this length BigBird attends to every token; for longer texts its block-sparse attention begins."""
    table = int(config.max_position_embeddings)
    if config.attention_type != "block_sparse":
        return table
    return min(table, (5 + 2 * int(config.num_random_blocks)) * int(config.block_size))


_LAYER = {"Attention": (0, 1), "BiasGelu": (0, 1), "SkipLayerNormalization": (0, 2)}
_WHOLE = {"EmbedLayerNormalization": (1, 0), **_LAYER}
_NORMS = {"BiasGelu": (0, 1), "SkipLayerNormalization": (0, 2)}
_EMBEDDED_NORMS = {"BiasGelu": (0, 1), "SkipLayerNormalization": (1, 2)}
_GELU_AND_NORMS = {"Gelu": (0, 1), "SkipLayerNormalization": (0, 2)}
_RMS_NORMS = {"SkipSimplifiedLayerNormalization": (0, 2)}
_READS_DECODER = "it reads the decoder, which is not exported"
_GEMMA = {"FastGelu": (0, 1), **_RMS_NORMS}
_DECODER_STACK = "causal, or bidirectional if its config says so"
_EXPERTS = (
    "it is a mixture of experts, chosen for each token: torch's exporters fail on the choice (aten::histc), and the form "
    "that they can trace copies the weights of every chosen expert for every token"
)
_IMAGES_TOO = (
    "it reads images, too, and the sizes of its text part are in a section of their own; save the text part by itself"
)
_SLOW_TOKENIZER = "needs a tokenizer.json: its own tokenizer is slow"


def _t5_encoder(name: str, model_class: str, after: str = "") -> Family:
    return Family(
        name, _PLAIN, after=after, fusion="t5", fused=_RMS_NORMS, relative_positions=True, overrides={"use_cache": False},
        classes={"AutoModel": model_class}, note="the encoder alone",
        refused_heads={
            "AutoModelForSequenceClassification": _READS_DECODER,
            "AutoModelForQuestionAnswering": _READS_DECODER,
        },
    )  # fmt: skip


def _decoder(
    name: str, *, after: str = "qwen3", fused: Mapping[str, tuple[int, int]] = _RMS_NORMS, **facts: Any
) -> Family:
    """A decoder stack that embeds, classifies or reranks.

    Texts are padded on the right, also where the model's own tokenizer pads on the left: a causal token reads nothing
    that follows it, and the mask says which token is the last.
    """
    return Family(
        name, _PLAIN, after=after, fused=fused, generator=True, overrides={"use_cache": False}, **facts
    )  # fmt: skip


FAMILIES: dict[str, Family] = {
    row.name: row
    for row in (
        Family("bert", _WITH_SEGMENTS, fused=_WHOLE),
        Family("electra", _WITH_SEGMENTS, fused=_WHOLE),
        Family("ernie", _WITH_SEGMENTS, fused=_WHOLE),
        Family("albert", _WITH_SEGMENTS, fused=_LAYER, note="shared layers stay shared in the file"),
        Family("rembert", _WITH_SEGMENTS, after="bert", fused=_WHOLE, sdpa=False),
        Family(
            "megatron-bert", _WITH_SEGMENTS, after="bert", fused={**_NORMS, "Attention": (-1, 1)}, sdpa=False,
            note="ONNX Runtime does not fuse the attention of its first layer",
        ),
        Family("bert-generation", _PLAIN, after="bert", fused=_WHOLE, overrides={"use_cache": False}, note="the encoder alone"),
        Family("distilbert", _PLAIN, fused=_WHOLE),
        Family("mobilebert", _WITH_SEGMENTS),
        Family(
            "squeezebert", _WITH_SEGMENTS, fused={"Gelu": (0, 1), "SkipLayerNormalization": (1, 0)}, sdpa=False,
        ),
        Family(
            "roformer", _WITH_SEGMENTS, fused=_EMBEDDED_NORMS, sdpa=False,
            refused_heads={
                "AutoModelForMultipleChoice": "it reads the last position, so the answer would change with padding"
            },
        ),
        Family(
            "nomic_bert", _WITH_SEGMENTS, fused={"SkipLayerNormalization": (1, 2)},
            unsupported={"moe_every_n_layers": _EXPERTS, "num_experts": _EXPERTS},
        ),
        Family("gte", _WITH_SEGMENTS, after="nomic_bert", fused={"Gelu": (0, 1), "SkipLayerNormalization": (1, 2)}),
        Family("jina_embeddings_v3", _WITH_SEGMENTS, after="xlm-roberta", fused=_EMBEDDED_NORMS, note="without its LoRA adapters"),
        Family("mpnet", _PLAIN, fused=_EMBEDDED_NORMS, reserved_positions=2, sdpa=False),
        Family("roberta", _PLAIN, fused=_LAYER, reserved_positions=2),
        Family("roberta-prelayernorm", _PLAIN, after="roberta", fused=_LAYER, reserved_positions=2),
        Family("xlm-roberta", _PLAIN, fused=_LAYER, reserved_positions=2),
        Family("xlm-roberta-xl", _PLAIN, after="xlm-roberta", fused=_LAYER, reserved_positions=2),
        Family("camembert", _PLAIN, fused=_LAYER, reserved_positions=2),
        Family("data2vec-text", _PLAIN, fused=_LAYER, reserved_positions=2),
        Family(
            "ibert", _PLAIN, fused=_LAYER, reserved_positions=2, sdpa=False,
            unsupported={"quant_mode": "I-BERT is exported in float; set it to false and quantise with trimaran"},
            note="in float",
        ),
        Family(
            "luke", _PLAIN, after="roberta", fused=_EMBEDDED_NORMS, reserved_positions=2, sdpa=False,
            note="words without entities",
        ),
        Family("esm", _PLAIN, after="roberta", fused=_NORMS, reserved_positions=2, note=f"proteins; {_SLOW_TOKENIZER}"),
        Family("esmc", _PLAIN, after="esm", fused={"SkipLayerNormalization": (0, 2)}, note="proteins"),
        Family("deberta", _WITH_SEGMENTS, fused={"BiasGelu": (0, 1)}, sdpa=False),
        Family("deberta-v2", _WITH_SEGMENTS, fused=_NORMS, sdpa=False, note="DeBERTa v2 and v3"),
        Family("modernbert", _PLAIN, fused=_GELU_AND_NORMS),
        Family("eurobert", _PLAIN, after="modernbert", fused=_RMS_NORMS),
        Family("ultrabert", _PLAIN, after="modernbert", fused=_RMS_NORMS),
        Family(
            "big_bird", _PLAIN, fused=_WHOLE, sdpa=False, longest=_full_attention_reach,
            overrides={"attention_type": "original_full"}, note="up to the length at which its attention is still full",
        ),
        Family("xlm", _PLAIN, fused=_NORMS, sdpa=False, note=_SLOW_TOKENIZER),
        Family(
            "flaubert", _PLAIN, fused=_NORMS, sdpa=False, note=_SLOW_TOKENIZER,
            unsupported={"pre_norm": "transformers 5 itself fails on pre-norm FlauBERT"},
        ),
        Family(
            "xlnet", _WITH_SEGMENTS, fused={"BiasGelu": (0, 1), "SkipLayerNormalization": (-1, 2)}, sdpa=False,
            relative_positions=True, pad_side="left", generator=True, overrides={"use_mems_eval": False},
            note="padded on the left; <cls> on the right, in segment 2",
        ),
        _t5_encoder("t5", "T5EncoderModel"),
        _t5_encoder("mt5", "MT5EncoderModel", after="t5"),
        _t5_encoder("umt5", "UMT5EncoderModel", after="t5"),
        Family(
            "t5gemma", _PLAIN, after="t5", fused=_GEMMA, sdpa=False, section="encoder",
            overrides={"is_encoder_decoder": False}, classes={"AutoModel": "T5GemmaEncoderModel"},
            note="the encoder alone",
            refused_heads={
                "AutoModelForSequenceClassification": _READS_DECODER,
                "AutoModelForTokenClassification": _READS_DECODER,
            },
        ),
        Family(
            "gpt2", _PLAIN, fusion="gpt2", fused={"FastGelu": (0, 1), "SkipLayerNormalization": (0, 2)},
            generator=True, overrides={"use_cache": False}, note="as an encoder",
        ),
        _decoder("qwen3", after="", note=_DECODER_STACK),
        _decoder("qwen2"),
        _decoder("llama"),
        _decoder("mistral"),
        _decoder("ministral3"),
        _decoder("smollm3"),
        _decoder("granite"),
        _decoder("phi3"),
        _decoder("lfm2", note="convolutions and attention"),
        _decoder("gemma", fused=_GEMMA),
        _decoder("gemma2", fused=_GEMMA, sdpa=False),
        _decoder("gemma3_text", fused=_GEMMA, note="Gemma 3 and EmbeddingGemma"),
        _decoder("olmo2", fused={"SimplifiedLayerNormalization": (0, 4)}),
        _decoder("modernbert-decoder", fused=_GELU_AND_NORMS),
        _decoder("opt", fused={"LayerNormalization": (1, 2)}),
        _decoder("gpt_neox", fused={"BiasGelu": (0, 1), "SkipLayerNormalization": (0, 1)}),
        _decoder("bloom", fused={"FastGelu": (0, 1), "SkipLayerNormalization": (0, 2)}, sdpa=False, relative_positions=True),
    )
}  # fmt: skip

# A user's own PyTorch module: its inputs are its own, and no fusion is promised.
MODULE = Family("module", _PLAIN, note="any PyTorch module, through --module")

# A table of token vectors and their mean (sentence-transformers' StaticEmbedding, model2vec): embedding only.
STATIC = Family(
    "static", _PLAIN, relative_positions=True, note="StaticEmbedding and model2vec folders; a table, no layers"
)

# Families that are known not to work, with the reason. They are refused at once rather than after minutes.
REFUSED: dict[str, str] = {
    "longformer": "its sliding-window attention is traced for one length only, so neither of torch's exporters gives "
    "a graph that is true for others",
    "nystromformer": "its landmarks are computed for one length only",
    "convbert": "its convolutions read padding, so a text's answer would depend on the texts beside it; as a module of "
    "your own (--module) it is served in rows of equal length",
    "fnet": "it has no attention mask, so a text's answer would depend on the texts beside it",
    "yoso": "its attention changes with padding, so a text's answer would depend on the texts beside it",
    "roc_bert": "it reads the glyph and the sound of each token, which a tokenizer.json does not give",
    "mra": "without its CUDA kernel transformers computes zeros for its attention",
    **dict.fromkeys(("qwen3_moe", "qwen2_moe", "mixtral", "olmoe", "granitemoe", "phimoe", "gpt_oss"), _EXPERTS),
    **dict.fromkeys(("gemma3", "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "mistral3", "llava"), _IMAGES_TOO),
    "t5gemma2": "transformers makes its masks by vmap, which torch's exporters cannot trace",
    "qwen3_5": "its gated delta net solves triangular systems, for which ONNX has no operator",
}


def family(name: str) -> Family:
    if name in REFUSED:
        raise UsageError(f"The family {name} cannot be exported: {REFUSED[name]}.")
    if name in (MODULE.name, STATIC.name):
        return MODULE if name == MODULE.name else STATIC
    if name not in FAMILIES:
        raise UsageError(f"Unknown model family {name!r}.", hint=f"Known: {', '.join(sorted(FAMILIES))}.")
    return FAMILIES[name]
