"""Decoders rerank as sentence-transformers' CrossEncoder scores them: by a head, or by the next word."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import answers
from tests.export import zoo
from tests.export.exported import LONG, answering, exported, reference_of
from trimaran.core.artifact import Artifact
from trimaran.core.corpus import encoder_of
from trimaran.core.errors import UsageError
from trimaran.core.spec import Range, ShapeProfile
from trimaran.export.chat import taken_apart
from trimaran.export.locate import locate
from trimaran.export.reference import model_ref_of

# As Qwen3-Reranker has it: a default instruction, and an end that the model must see.
TEMPLATE = (
    "<sys>Answer yes or no.</sys><user><Instruct>: "
    "{{ messages | selectattr('role', 'eq', 'system') | map(attribute='content') | first "
    "| default('Find the answer', true) }}\n"
    "<Query>: {{ messages | selectattr('role', 'eq', 'query') | map(attribute='content') | first }}\n"
    "<Document>: {{ messages | selectattr('role', 'eq', 'document') | map(attribute='content') | first }}</user>"
    "{% if add_generation_prompt %}<think>\n\n</think>{% endif %}"
)
QUERY = "Where is the boat? 🚤"
DOCUMENTS = ["In the harbour.", "", "今天天气很好，我们去公园吧。", " spaces \n", "far too long " * 60]
WIDE = ShapeProfile(batch=Range(minimum=1, typical=2, maximum=3), sequence=Range(minimum=1, typical=16, maximum=128))


def _tokenizer_with_template() -> Any:
    tokenizer = zoo.tokenizer_of("decoder")
    tokenizer.add_tokens(["yes", "no"])
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def _generator(folder: Path, family: str = "qwen3") -> Path:
    """A plain folder of a model that writes text, with a chat template."""
    import torch
    import transformers

    tokenizer = _tokenizer_with_template()
    _, sizes = zoo.ZOO[family]
    longer = {"max_position_embeddings": 128, "vocab_size": len(tokenizer), "pad_token_id": 0, "eos_token_id": 1}
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(family, **{**sizes, **longer})
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _cross_encoder(folder: Path, **options: Any) -> Any:
    from sentence_transformers import CrossEncoder

    return CrossEncoder(str(folder), device="cpu", **options)


def _assert_ranked_alike(graph: Artifact, model: Any, **asked: Any) -> None:
    prompt = {"prompt": asked.get("instruction"), "prompt_name": asked.get("prompt")}
    wanted = model.rank(QUERY, DOCUMENTS, **prompt)
    [found] = answers.ranked(answering(graph), [(QUERY, DOCUMENTS)], **asked)
    assert [row["index"] for row in found] == [row["corpus_id"] for row in wanted]
    np.testing.assert_allclose([row["score"] for row in found], [row["score"] for row in wanted], atol=1e-5)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that sentence-transformers saved: LogitScore, prompts, arguments of the template, no activation."""
    import torch

    root = tmp_path_factory.mktemp("reranker")
    model = _cross_encoder(_generator(root / "plain"), activation_fn=torch.nn.Identity())
    model.prompts = {"web": "Find pages"}
    model.default_prompt_name = "web"
    model[0].processing_kwargs = {"chat_template": {"add_generation_prompt": True}}
    model.save_pretrained(str(root / "saved"))
    return root / "saved"


def test_a_generator_reranks_by_two_words_without_a_product_over_the_vocabulary(saved: Path, tmp_path: Path) -> None:
    """With its own prompt, with an instruction by request, and with documents that are cut before the template ends."""
    import onnx

    ref = locate(str(saved))
    assert (ref.task, len(ref.score_ids), ref.activation, ref.default_prompt) == ("rerank", 2, "none", "web")
    graph = exported(ref, tmp_path, profile=WIDE)
    model = _cross_encoder(saved)
    for asked in ({}, {"prompt": "web"}, {"instruction": "Find a harbour"}):
        _assert_ranked_alike(graph, model, **asked)
    by_default, instructed = (
        answers.ranked(answering(graph), [(QUERY, DOCUMENTS[:1])], **asked)[0][0]["score"]
        for asked in ({}, {"instruction": "Find a harbour"})
    )
    assert by_default != pytest.approx(instructed, abs=1e-6)
    stored = onnx.load(graph.entry_path).graph.initializer
    tables = [tensor for tensor in stored if ref.vocabulary in tensor.dims]
    assert len(tables) == 1, "only the table of token vectors, no weights of the words"


def test_a_plain_generator_folder_reranks_by_yes_and_no(tmp_path: Path) -> None:
    folder = _generator(tmp_path / "model")
    assert locate(str(folder)).task == "embedding"
    ref = locate(str(folder), task_name="rerank")
    graph = exported(ref, tmp_path, profile=WIDE)
    model = _cross_encoder(folder)
    _assert_ranked_alike(graph, model)
    _assert_ranked_alike(graph, model, instruction="Find a harbour")


def test_a_classifying_decoder_that_sentence_transformers_saved_is_a_reranker(tmp_path: Path) -> None:
    plain = zoo.saved_model(tmp_path / "plain", "qwen3", "rerank")
    _cross_encoder(plain).save_pretrained(str(tmp_path / "saved"))
    ref = locate(str(tmp_path / "saved"))
    assert ref.task == "rerank" and not ref.score_ids
    graph = exported(ref, tmp_path, profile=LONG)
    _assert_ranked_alike(graph, _cross_encoder(tmp_path / "saved"))


def test_texts_of_a_plain_decoder_with_a_chat_template_are_embedded_in_it(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    folder = _generator(tmp_path / "model")
    template = "{% for message in messages %}<{{ message.role }}>{{ message.content | trim }}{% endfor %}<end>"
    (folder / "chat_template.jinja").write_text(template)
    graph = exported(locate(str(folder)), tmp_path, profile=WIDE)
    found = answers.embeddings(answering(graph), DOCUMENTS)
    model = SentenceTransformer(str(folder), device="cpu")
    np.testing.assert_allclose(found, model.encode(DOCUMENTS, normalize_embeddings=True), atol=1e-5)


def test_a_chat_template_without_roles_for_pairs_is_refused_with_what_to_do(tmp_path: Path) -> None:
    folder = _generator(tmp_path / "model")
    (folder / "chat_template.jinja").write_text("{{ messages[0].role == 'user' }}")
    with pytest.raises(UsageError, match="leaves out the text of the role query") as refused:
        reference_of(locate(str(folder), task_name="rerank"), tmp_path)
    assert "chat_template.jinja" in (refused.value.hint or "")


def test_logits_that_are_bounded_are_refused(tmp_path: Path) -> None:
    folder = _generator(tmp_path / "model", "gemma2")
    with pytest.raises(UsageError, match="scales its logits"):
        exported(locate(str(folder), task_name="rerank"), tmp_path, profile=WIDE)


def test_calibration_and_proofs_put_single_texts_twice_into_a_template_for_pairs(saved: Path, tmp_path: Path) -> None:
    encoder = encoder_of(reference_of(locate(str(saved)), tmp_path, profile=WIDE))
    assert encoder.rows(["a text"]) == encoder.rows([("a text", "a text")])


def test_a_template_that_changes_its_texts_is_not_taken_apart() -> None:
    with pytest.raises(ValueError, match="changes the texts"):
        taken_apart(lambda texts: f"<{texts['user'].lower()} {texts['user'].replace(' ', '')}>", ("user",))
    kept = taken_apart(lambda texts: f"<{texts['user'].strip()}>", ("user",))
    assert (kept.around, kept.roles, kept.strip) == (("<", ">"), ("user",), True)


def test_score_words_and_chat_are_kept_only_where_a_model_has_them(saved: Path, tmp_path: Path) -> None:
    """Manifests of other models stay as they were."""
    plain = reference_of(locate(str(zoo.saved_model(tmp_path / "bert", "bert", "embedding"))), tmp_path)
    assert "chat" not in plain.tokenizer.model_dump() and "score_ids" not in model_ref_of(plain).model_dump()
    scored = reference_of(locate(str(saved)), tmp_path, profile=WIDE)
    assert set(scored.tokenizer.model_dump()["chat"]["templates"]) >= {"query,document", "system,query,document"}
