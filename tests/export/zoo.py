"""Tiny seeded models of every family, each with a small trained tokenizer of its own kind, saved as folders."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trimaran.core.corpus import shipped_texts
from trimaran.core.families import FAMILIES
from trimaran.core.tasks import TASKS
from trimaran.export.heads import has_head

LABELS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
NLI = ("contradiction", "neutral", "entailment")
VOCABULARY = 400
HEADS = {row.name: row.model_class for row in TASKS.values()}
# One task for each head: what a family that was built after another one is tested with.
ESSENTIAL = tuple({head: task for task, head in reversed(HEADS.items())}.values())
# Families of every kind of tokenizer and of padding. They are tested with every task that they have.
KINDS = ("bert", "roberta", "albert", "xlnet", "xlm-roberta")
TASK_LABELS = {
    "text-classification": ("good", "bad", "odd"),
    "token-classification": LABELS,
    "rerank": ("relevance",),
    "zero-shot-classification": NLI,
}

_SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}
_ROBERTA = {**_SIZES, "max_position_embeddings": 66, "type_vocab_size": 1, "pad_token_id": 1}
_XLM = {
    "emb_dim": 32,
    "n_layers": 2,
    "n_heads": 4,
    "max_position_embeddings": 64,
    "pad_index": 0,
    "unk_index": 1,
    "bos_index": 2,
    "eos_index": 3,
    "mask_index": 4,
}
_T5 = {"d_model": 32, "num_layers": 2, "num_heads": 4, "d_ff": 64, "d_kv": 8}
_DECODER = {**_SIZES, "num_key_value_heads": 2, "head_dim": 8}
_LOCAL_AND_FULL = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 8}
# Family -> (kind of tokenizer, config).
ZOO: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("wordpiece", _SIZES),
    "electra": ("wordpiece", {**_SIZES, "embedding_size": 16}),
    "ernie": ("wordpiece", {**_SIZES, "type_vocab_size": 4}),
    "distilbert": (
        "wordpiece",
        {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "max_position_embeddings": 64},
    ),
    "mobilebert": (
        "wordpiece",
        {
            **_SIZES,
            "embedding_size": 16,
            "intra_bottleneck_size": 16,
            "true_hidden_size": 16,
            "num_feedforward_networks": 2,
        },
    ),
    "mpnet": ("mpnet", {**_SIZES, "max_position_embeddings": 66, "pad_token_id": 1}),
    "roformer": ("wordpiece", {**_SIZES, "embedding_size": 32}),
    "squeezebert": ("wordpiece", {**_SIZES, "embedding_size": 32}),
    "nomic_bert": ("wordpiece", _SIZES),
    "roberta": ("bpe", _ROBERTA),
    "data2vec-text": ("bpe", _ROBERTA),
    "ibert": ("bpe", _ROBERTA),
    "deberta": (
        "deberta",
        {**_SIZES, "type_vocab_size": 0, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
    ),
    "modernbert": (
        "modernbert",
        {**_SIZES, "global_attn_every_n_layers": 2, "local_attention": 8, "classifier_pooling": "mean"},
    ),
    "gpt2": ("gpt2", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}),
    "xlm": ("xlm", _XLM),
    "flaubert": ("xlm", _XLM),
    "albert": ("albert", {**_SIZES, "embedding_size": 16, "num_hidden_layers": 4}),
    "xlm-roberta": ("xlm-roberta", _ROBERTA),
    "camembert": ("camembert", _ROBERTA),
    "xlnet": ("xlnet", {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64}),
    "deberta-v2": (
        "deberta-v2",
        {
            **_SIZES,
            "type_vocab_size": 0,
            "relative_attention": True,
            "position_buckets": 16,
            "norm_rel_ebd": "layer_norm",
            "share_att_key": True,
            "pos_att_type": ["p2c", "c2p"],
            "position_biased_input": False,
        },
    ),
    "big_bird": ("big_bird", {**_SIZES, "block_size": 8, "num_random_blocks": 2}),
    "rembert": ("albert", {**_SIZES, "input_embedding_size": 16, "output_embedding_size": 24}),
    "megatron-bert": ("wordpiece", _SIZES),
    "bert-generation": ("t5", _SIZES),
    "gte": ("wordpiece", _SIZES),
    "jina_embeddings_v3": ("xlm-roberta", {**_SIZES, "type_vocab_size": 1}),
    "roberta-prelayernorm": ("bpe", _ROBERTA),
    "xlm-roberta-xl": ("xlm-roberta", _ROBERTA),
    "luke": ("bpe", {**_ROBERTA, "entity_vocab_size": 10, "entity_emb_size": 16}),
    "esm": ("bpe", {**_ROBERTA, "mask_token_id": 4, "token_dropout": True, "position_embedding_type": "rotary"}),
    "esmc": ("bpe", {**_SIZES, "mask_token_id": 4}),
    "eurobert": ("modernbert", {**_SIZES, "num_key_value_heads": 2, "mask_token_id": 4}),
    "ultrabert": ("modernbert", _SIZES),
    "qwen3": ("decoder", _DECODER),
    "qwen2": ("decoder", _DECODER),
    "llama": ("decoder", _DECODER),
    "mistral": ("decoder", {**_DECODER, "sliding_window": 8}),
    "ministral3": ("decoder", _DECODER),
    "smollm3": ("decoder", _DECODER),
    "granite": ("decoder", _DECODER),
    "phi3": ("decoder", _DECODER),
    "lfm2": ("decoder", {**_DECODER, "layer_types": ["conv", "full_attention"]}),
    "gemma": ("decoder", _DECODER),
    "gemma2": ("decoder", {**_DECODER, **_LOCAL_AND_FULL}),
    "gemma3_text": ("decoder", {**_DECODER, **_LOCAL_AND_FULL}),
    "olmo2": ("decoder", _DECODER),
    "modernbert-decoder": ("decoder", {**_SIZES, "global_attn_every_n_layers": 2, "local_attention": 8}),
    "opt": ("decoder", {**_SIZES, "ffn_dim": 64, "word_embed_proj_dim": 32}),
    "gpt_neox": ("decoder", _SIZES),
    "bloom": ("decoder", {"hidden_size": 32, "n_layer": 2, "n_head": 4}),
    "t5": ("t5", _T5),
    "mt5": ("t5", _T5),
    "umt5": ("t5", _T5),
    "t5gemma": ("decoder", {**_DECODER, **_LOCAL_AND_FULL}),
}


def is_tested(family: str, task: str) -> bool:
    """Whether tests export this family with this task.

    Every family is tested with every head that it has. Several tasks share a head: what they compute after it does not
    depend on the family. So families of `KINDS` are tested with all of them, and each other family with one in turn.
    """
    if not has_head(family, HEADS[task]):
        return False
    if task in ESSENTIAL:
        return True
    if task == "hybrid-embedding":
        return family == "xlm-roberta"
    if FAMILIES[family].after:
        return False
    others = [name for name in HEADS if name not in (*ESSENTIAL, "hybrid-embedding") and has_head(family, HEADS[name])]
    return family in KINDS or task == others[list(ZOO).index(family) % len(others)]


def saved_model(folder: Path, family: str, task: str, *, seed: int = 0, **changes: Any) -> Path:
    """A model folder for the family with the task's head. Weights are scaled so that answers differ between texts."""
    import torch
    import transformers

    kind, sizes = ZOO[family]
    tokenizer = tokenizer_of(kind)
    special = {
        name: value
        for name in ("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id")
        if (value := getattr(tokenizer, name, None)) is not None
    }
    facts = config_facts(family, {"vocab_size": len(tokenizer), **special, **sizes, **changes})
    config = transformers.AutoConfig.for_model(family, **{**_label_config(task), **facts})
    torch.manual_seed(seed)
    encoder = FAMILIES[family].classes.get(HEADS[task])
    model = (
        getattr(transformers, encoder)(config) if encoder else getattr(transformers, HEADS[task]).from_config(config)
    )
    with torch.no_grad():
        for value in model.parameters():
            if value.ndim > 1 and not family.endswith("t5"):
                value.mul_(1.5)
    model.eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if task == "hybrid-embedding":
        save_hybrid_heads(folder, 32)
    return folder


def config_facts(family: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts where the family's config has them: an encoder with a section of its own has a decoder like it."""
    row = FAMILIES[family]
    return {row.section: dict(facts), "decoder": dict(facts), **row.overrides} if row.section else dict(facts)


def save_hybrid_heads(folder: Path, hidden: int, *, width: int = 24) -> None:
    """The heads of bge-m3, as FlagEmbedding saves them: in half precision."""
    import torch

    for name, size in (("sparse_linear.pt", 1), ("colbert_linear.pt", width)):
        torch.save(torch.nn.Linear(hidden, size).half().state_dict(), folder / name)


def _label_config(task: str) -> dict[str, Any]:
    labels = TASK_LABELS.get(task)
    if labels is None:
        return {}
    both = {"id2label": dict(enumerate(labels)), "label2id": {label: index for index, label in enumerate(labels)}}
    return {**both, "sentence_transformers": {"version": "6"}} if task == "rerank" else both


def tokenizer_of(kind: str) -> Any:
    """The family's own transformers class around a vocabulary trained on the shipped corpus."""
    return _MAKERS[kind]()


@functools.cache
def wordpiece_vocabulary() -> dict[str, int]:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=VOCABULARY,
        limit_alphabet=120,
        special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
        show_progress=False,
    )
    tokenizer.train_from_iterator(shipped_texts("calibration"), trainer)
    vocabulary = tokenizer.get_vocab()
    return dict(sorted(vocabulary.items(), key=lambda item: item[1]))


@functools.cache
def byte_pairs(special: tuple[str, ...]) -> tuple[dict[str, int], list[tuple[str, str]]]:
    import json

    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(special),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(shipped_texts("calibration"), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], [tuple(pair) for pair in model["merges"]]


@functools.cache
def unigram_vocabulary(special: tuple[str, ...]) -> list[tuple[str, float]]:
    import json

    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    unknown = next(index for index, token in enumerate(special) if token.lower().strip("<[]>") == "unk")
    trainer = trainers.UnigramTrainer(
        vocab_size=VOCABULARY, special_tokens=list(special), unk_token=special[unknown], show_progress=False
    )
    texts = [text for text in shipped_texts("calibration") if text.isascii()]
    tokenizer.train_from_iterator(texts, trainer)
    return [(piece, score) for piece, score in json.loads(tokenizer.to_str())["model"]["vocab"]]


def _wordpiece() -> Any:
    import transformers

    return transformers.BertTokenizer(vocab=wordpiece_vocabulary(), do_lower_case=True)


def _mpnet() -> Any:
    import transformers

    words = [word for word in wordpiece_vocabulary() if not word.startswith("[") or len(word) == 1]
    special = ["<s>", "<pad>", "</s>", "[UNK]"]
    vocabulary = {word: index for index, word in enumerate([*special, *words, "<mask>"])}
    return transformers.MPNetTokenizer(vocab=vocabulary)


def _bpe(name: str, special: tuple[str, ...], **tokens: str) -> Any:
    import transformers

    vocabulary, merges = byte_pairs(special)
    return getattr(transformers, name)(vocab=vocabulary, merges=merges, **tokens)


def _unigram(name: str, special: tuple[str, ...]) -> Any:
    import transformers

    return getattr(transformers, name)(vocab=unigram_vocabulary(special))


def _gpt2() -> Any:
    tokenizer = _bpe("GPT2Tokenizer", ("<|endoftext|>",))
    tokenizer.pad_token = "<|endoftext|>"
    return tokenizer


def _generic(vocabulary: dict[str, int], merges: list[tuple[str, str]], tokens: Mapping[str, str]) -> Any:
    """A byte BPE with `cls A sep` and `cls A sep B sep`, for families whose own class is slow or generic."""
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    cls, sep = tokens["cls_token"], tokens["sep_token"]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{cls} $A {sep}",
        pair=f"{cls} $A {sep} $B {sep}",
        special_tokens=[(cls, vocabulary[cls]), (sep, vocabulary[sep])],
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_input_names=["input_ids", "attention_mask"], **tokens
    )


def _xlm() -> Any:
    tokens = {
        "pad_token": "<pad>",
        "unk_token": "<unk>",
        "cls_token": "<s>",
        "sep_token": "</s>",
        "mask_token": "<mask>",
    }
    return _generic(*byte_pairs(("<pad>", "<unk>", "<s>", "</s>", "<mask>")), tokens)


def _modernbert() -> Any:
    names = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    tokens = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), names, strict=True))
    return _generic(*byte_pairs(names), tokens)


def _decoder() -> Any:
    """Ends each text with its end token, as the tokenizers of embedding models do."""
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

    pad, end = "<pad>", "<|endoftext|>"
    vocabulary, merges = byte_pairs((pad, end))
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {end}", pair=f"$A $B {end}", special_tokens=[(end, vocabulary[end])]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_input_names=["input_ids", "attention_mask"], pad_token=pad, eos_token=end
    )


_FAIRSEQ = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
_MAKERS = {
    "wordpiece": _wordpiece,
    "mpnet": _mpnet,
    "bpe": lambda: _bpe("RobertaTokenizer", _FAIRSEQ),
    "deberta": lambda: _bpe("DebertaTokenizer", ("[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]")),
    "modernbert": _modernbert,
    "gpt2": _gpt2,
    "decoder": _decoder,
    "xlm": _xlm,
    "albert": lambda: _unigram("AlbertTokenizer", ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")),
    "xlm-roberta": lambda: _unigram("XLMRobertaTokenizer", _FAIRSEQ),
    "camembert": lambda: _unigram("CamembertTokenizer", _FAIRSEQ),
    "xlnet": lambda: _unigram(
        "XLNetTokenizer", ("<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>")
    ),
    "deberta-v2": lambda: _unigram("DebertaV2Tokenizer", ("[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]")),
    "big_bird": lambda: _unigram("BigBirdTokenizer", ("<pad>", "</s>", "<s>", "<unk>", "[CLS]", "[SEP]", "[MASK]")),
    "t5": lambda: _unigram("T5Tokenizer", ("<pad>", "</s>", "<unk>")),
}
