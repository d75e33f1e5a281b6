"""Pairs and special tokens follow each family, and are those of its own tokenizer in transformers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.export import zoo
from trimaran.core.families import FAMILIES
from trimaran.runtime.text import TextEncoder

TEXTS = ("the park", "今天天气 🍕", "", ("the park", "is green"), ("天气?", "好 🍕!"), ("one", ""))
_BERT = ("[CLS]", "A", "[SEP]", "B", "[SEP]")
_ROBERTA = ("<s>", "A", "</s>", "</s>", "B", "</s>")
_XLM = ("<s>", "A", "</s>", "B", "</s>")
_FAIRSEQ = (
    *("roberta", "xlm-roberta", "camembert", "data2vec-text", "ibert", "mpnet"),
    *("roberta-prelayernorm", "xlm-roberta-xl", "jina_embeddings_v3", "luke", "esm", "esmc"),
)
LAYOUTS = {
    **dict.fromkeys(FAMILIES, _BERT),
    **dict.fromkeys(_FAIRSEQ, _ROBERTA),
    **dict.fromkeys(("xlm", "flaubert"), _XLM),
    # So transformers 5 lays it out, though DeBERTa was published with one separator in between.
    "deberta": ("[CLS]", "A", "[SEP]", "[SEP]", "B", "[SEP]"),
    "xlnet": ("A", "<sep>", "B", "<sep>", "<cls>"),
    **dict.fromkeys(("t5", "mt5", "umt5", "bert-generation"), ("A", "</s>", "B", "</s>")),
    "gpt2": ("A", "B"),
    **{family: ("A", "B", "<|endoftext|>") for family, (kind, _) in zoo.ZOO.items() if kind == "decoder"},
}


def _encoder(folder: Path, family: str, tokenizer: object) -> TextEncoder:
    backend = tokenizer.backend_tokenizer  # type: ignore[attr-defined]
    backend.no_padding()
    backend.no_truncation()
    backend.save(str(folder / "tokenizer.json"))
    return TextEncoder(
        str(folder / "tokenizer.json"),
        inputs=("input_ids", "attention_mask", "token_type_ids"),
        minimum=1,
        maximum=64,
        pad_id=7,
        pad_type_id=3,
        pad_side=FAMILIES[family].pad_side,
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_ids_and_segments_are_those_of_the_familys_tokenizer(tmp_path: Path, family: str) -> None:
    tokenizer = zoo.tokenizer_of(zoo.ZOO[family][0])
    # A pair with nothing in second place is a single text.
    parts = [tuple(part for part in text if part) if isinstance(text, tuple) else (text,) for text in TEXTS]
    wanted = [tokenizer(*found, return_token_type_ids=True) for found in parts]
    rows = _encoder(tmp_path, family, tokenizer).rows(TEXTS)
    assert [list(row.ids) for row in rows] == [list(found["input_ids"]) for found in wanted]
    assert [list(row.type_ids) for row in rows] == [list(found["token_type_ids"]) for found in wanted]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_pair_is_laid_out_as_the_family_was_trained(tmp_path: Path, family: str) -> None:
    tokenizer = zoo.tokenizer_of(zoo.ZOO[family][0])
    encoder = _encoder(tmp_path, family, tokenizer)
    (found,) = encoder.encodings([("park", "green")])
    layout: list[str] = []
    for token, part, special in zip(found.tokens, found.sequence_ids, found.special_tokens_mask, strict=True):
        name = token if special or part is None else "AB"[part]
        if special or not layout or layout[-1] != name:
            layout.append(name)
    assert tuple(layout) == LAYOUTS[family]


def test_xlnet_is_padded_on_the_left_with_the_classification_token_last_in_segment_two(tmp_path: Path) -> None:
    tokenizer = zoo.tokenizer_of("xlnet")
    encoder = _encoder(tmp_path, "xlnet", tokenizer)
    batch = encoder.batch(encoder.rows([("park", "green"), "the park is green and the weather is fine"]))
    width = batch["input_ids"].shape[1]
    for row in range(2):
        size = int(batch["attention_mask"][row].sum())
        assert batch["attention_mask"][row].tolist() == [0] * (width - size) + [1] * size
        assert batch["input_ids"][row, -1] == tokenizer.cls_token_id
        assert batch["token_type_ids"][row, -1] == 2
        assert batch["token_type_ids"][row, : width - size].tolist() == [3] * (width - size)
    assert sorted(set(batch["token_type_ids"][0].tolist()) - {3}) == [0, 1, 2]
