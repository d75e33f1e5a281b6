"""`{"input": [101, 7592, 102]}` was read with two sets of special tokens: cosine 0.847 to "hello"."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, processors

from tests.attacks.tokenizers_of_every_kind import KINDS
from tests.tiny import tiny_serving
from trimaran.serving.gateway.refusals import Refusal
from trimaran.serving.gateway.vocabulary import Vocabulary


@pytest.fixture(params=["WordPiece", "byte-level BPE", "Unigram"])
def vocabulary(request: pytest.FixtureRequest, tmp_path: Path) -> Vocabulary:
    """With a template of special tokens that are also found in texts, as those of published tokenizers are."""
    tokenizer: Tokenizer = KINDS[request.param]()
    tokenizer.add_special_tokens([AddedToken("[CLS]"), AddedToken("[SEP]")])
    tokenizer.decoder = None if request.param == "WordPiece" else _decoder(request.param)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        special_tokens=[(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")],
    )
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    tiny_serving(tmp_path)
    return Vocabulary(tmp_path)


def _decoder(kind: str) -> object:
    from tokenizers import decoders

    return decoders.ByteLevel() if kind == "byte-level BPE" else decoders.Metaspace()


def test_the_model_reads_exactly_the_ids_that_were_sent(vocabulary: Vocabulary) -> None:
    with_special = vocabulary._tokenizer.encode("a b").ids
    text = vocabulary.text_of_ids(with_special, 0)
    assert vocabulary._tokenizer.encode(text).ids == with_special
    bare = with_special[1:-1]
    assert vocabulary._tokenizer.encode(vocabulary.text_of_ids(bare, 0)).ids == with_special


def test_ids_with_half_of_the_special_tokens_are_refused(vocabulary: Vocabulary) -> None:
    whole = vocabulary._tokenizer.encode("a b").ids
    for ids in (whole[1:], whole[:-1], [whole[0], *whole], [*whole, whole[-1]][1:]):
        try:
            text = vocabulary.text_of_ids(ids, 0)
        except Refusal as refusal:
            assert refusal.status == 422
        else:
            assert vocabulary._tokenizer.encode(text).ids == ids
