"""A model with fewer tokens answers texts whose tokens stayed as before, and reads all others."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.commands import trimaran_json
from tests.export import zoo
from tests.export.test_prompts import sentence_folder
from trimaran.core.corpus import shipped_texts
from trimaran.core.errors import UsageError
from trimaran.core.progress import SilentProgress
from trimaran.export.load import load_tokenizer
from trimaran.export.locate import locate
from trimaran.pipeline.shrink import VocabularyReport, shrink_vocabulary
from trimaran.shrink.tokenizer_json import kept_ids
from trimaran.shrink.vocabulary import coverage, ids_of

# One family for each kind of tokenizer.
FAMILIES = {kind: family for family, (kind, _) in reversed(zoo.ZOO.items())}
TEXTS = ("The cat sat on the mat.", "A dog ran over a good road!", "the cat, the dog and the road", "nothing at all")
OTHERS = shipped_texts("judging")[::40]


def texts_file(folder: Path) -> Path:
    path = folder / "texts.txt"
    path.write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    return path


def shrunk(model: Path, folder: Path) -> tuple[Path, VocabularyReport]:
    output = folder / "small"
    return output, shrink_vocabulary(str(model), [texts_file(folder)], output, progress=SilentProgress())


@pytest.mark.parametrize("kind", FAMILIES)
def test_every_kind_of_tokenizer_reads_the_given_texts_as_before_and_all_others_without_loss(
    tmp_path: Path, kind: str
) -> None:
    zoo.saved_model(tmp_path / "model", FAMILIES[kind], "embedding")
    output, report = shrunk(tmp_path / "model", tmp_path)
    assert report.tokens_after < report.tokens_before
    assert report.bytes_after < report.bytes_before
    assert report.largest_difference == 0, "equal to the last bit"
    before, after = (load_tokenizer(locate(str(folder))) for folder in (tmp_path / "model", output))
    for old, new in zip(ids_of(before, OTHERS), ids_of(after, OTHERS), strict=True):
        assert new.count(after.unk_token_id) == old.count(before.unk_token_id), "no character became unknown"
        assert after.decode(new) == before.decode(old)


@pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta"])
def test_sentence_transformers_gives_the_same_vectors_to_texts_and_prompts_that_stayed(
    tmp_path: Path, family: str
) -> None:
    from sentence_transformers import SentenceTransformer

    teacher = sentence_folder(tmp_path, family=family, prompts={"query": "Zzq find: "}, default_prompt_name="query")
    output, _ = shrunk(tmp_path / "sentence", tmp_path)
    student = SentenceTransformer(str(output), device="cpu")
    assert student.prompts["query"] == "Zzq find: "
    assert student.max_seq_length == teacher.max_seq_length
    for text in TEXTS:
        np.testing.assert_array_equal(student.encode(text), teacher.encode(text))


@pytest.mark.parametrize("task", ["fill-mask", "text-classification"])
def test_heads_stay_and_config_names_the_new_ids(tmp_path: Path, task: str) -> None:
    zoo.saved_model(tmp_path / "model", "roberta", task)
    output, report = shrunk(tmp_path / "model", tmp_path)
    config = json.loads((output / "config.json").read_text(encoding="utf-8"))
    assert config["vocab_size"] == report.tokens_after
    tokenizer = load_tokenizer(locate(str(output)))
    assert (config["pad_token_id"], config["eos_token_id"]) == (tokenizer.pad_token_id, tokenizer.eos_token_id)
    assert locate(str(output)).task == task


def test_the_command_writes_a_report_and_refuses_what_it_cannot_do(tmp_path: Path) -> None:
    zoo.saved_model(tmp_path / "model", "bert", "embedding")
    arguments = ("shrink", str(tmp_path / "model"), "--vocabulary", str(texts_file(tmp_path)))
    printed = trimaran_json(*arguments, "-o", str(tmp_path / "small"), home=tmp_path / "home")
    assert VocabularyReport.read(tmp_path / "small" / "shrink.json").tokens_after == printed["tokens_after"]
    assert f"{printed['tokens_after']:,} of its" in (tmp_path / "small" / "README.md").read_text(encoding="utf-8")
    with pytest.raises(UsageError, match="holds something already"):
        shrunk(tmp_path / "model", tmp_path)
    assert not list(tmp_path.glob(".tmp*")), "nothing half-made is left"


def test_coverage_is_that_of_texts_which_were_not_given() -> None:
    ids = [[1, 2, 3, 4], *[[1, 2]] * 9]
    assert coverage(ids, always=[]) == 0.5
    assert coverage(ids, always=[3]) == 0.75


def test_characters_that_bert_never_leaves_inside_a_word_do_not_stay_there() -> None:
    from tokenizers import Tokenizer
    from tokenizers.models import WordPiece
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer

    tokens = ("[UNK]", "a", "##a", "é", "##é", "中", "##中", "!", "##!", "か", "##か", "word")
    tokenizer = Tokenizer(WordPiece({token: index for index, token in enumerate(tokens)}, unk_token="[UNK]"))
    whole = json.loads(tokenizer.to_str())
    everything_but_the_word = list(range(len(tokens) - 1))
    assert kept_ids(whole, (), pad_id=0) == everything_but_the_word, "without BERT's rules all of them can occur"
    tokenizer.normalizer, tokenizer.pre_tokenizer = BertNormalizer(lowercase=True), BertPreTokenizer()
    kept = {tokens[index] for index in kept_ids(json.loads(tokenizer.to_str()), (), pad_id=0)}
    assert kept == {"[UNK]", "a", "##a", "é", "中", "!", "か", "##か"}
