"""A Rust panic is no Exception: 10 bad requests failed 50 of 50 good requests of their batches."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from tokenizers import Regex, Tokenizer, pre_tokenizers

from tests.tiny import tiny_serving, tiny_tokenizer
from trimaran.runtime import triton_text_model, triton_tokenizer_model
from trimaran.runtime.answers import Answering, Reader
from trimaran.runtime.pulse import Pulse
from trimaran.runtime.shadow import Sampler
from trimaran.runtime.tasks import served_task
from trimaran.runtime.text import TextEncoder
from trimaran.serving.gateway.refusals import Refusal
from trimaran.serving.gateway.vocabulary import Vocabulary

# The expression backtracks without end on this text, and the tokenizer's library panics.
PANICS = "x" * 40 + "z"


class FakeTensor(NamedTuple):
    name: str
    array: Any

    def as_numpy(self) -> Any:
        return self.array


class FakeError(NamedTuple):
    message: str
    code: int | None = None
    INVALID_ARG = 3


class FakeResponse(NamedTuple):
    tensors: Any = ()
    error: Any = None


TRITON = SimpleNamespace(
    Tensor=FakeTensor,
    TritonError=FakeError,
    InferenceResponse=FakeResponse,
    get_input_tensor_by_name=lambda request, name: request.get(name),
)


def request(text: str) -> dict[str, FakeTensor]:
    return {"TEXT": FakeTensor("TEXT", np.array([[text.encode()]], dtype=np.object_))}


@pytest.fixture
def encoder(tmp_path: Path) -> TextEncoder:
    path = tmp_path / "tokenizer.json"
    tiny_tokenizer(path)
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(r"(x+x+)+y"), "isolated"), pre_tokenizers.Whitespace()]
    )
    tokenizer.save(str(path))
    return TextEncoder(str(path), inputs=("input_ids",), minimum=1, maximum=16, pad_id=0)


def test_the_batch_mates_are_answered_by_the_text_stage(encoder: TextEncoder, tmp_path: Path) -> None:
    stage = triton_text_model.TritonPythonModel()
    stage._triton, stage._pulse, stage._task = TRITON, Pulse(), served_task("embedding")
    stage._shadow = Sampler(TRITON, stage._task.tensors, {})
    stage._served = Answering(
        infer=lambda inputs: {"embedding": inputs["input_ids"].sum(axis=1, keepdims=True).astype(np.float32)},
        encoder=encoder,
        reader=Reader(str(tmp_path / "tokenizer.json")),
    )
    good, bad, other = stage.execute([request("the cat"), request(PANICS), request("dog")])
    assert (bad.error.code, bad.error.message) == (FakeError.INVALID_ARG, "The tokenizer cannot read this text.")
    assert [response.tensors[0].array.tolist() for response in (good, other)] == [[[2 + 4 + 5 + 3]], [[2 + 6 + 3]]]


def test_the_batch_mates_are_answered_by_the_tokenizing_stage(encoder: TextEncoder) -> None:
    stage = triton_tokenizer_model.TritonPythonModel()
    stage._triton, stage._encoder, stage._longest = TRITON, encoder, 16
    good, bad = stage.execute([request("the cat"), request(PANICS)])
    assert bad.error.code == FakeError.INVALID_ARG
    assert good.tensors[0].array[0, :4].tolist() == [2, 4, 5, 3]


def test_the_gateway_refuses_the_text_before_it_asks_triton(encoder: TextEncoder, tmp_path: Path) -> None:
    tiny_serving(tmp_path)
    vocabulary = Vocabulary(tmp_path)
    with pytest.raises(Refusal, match="cannot read") as refused:
        vocabulary.count(["the cat", PANICS], most=1000)
    assert refused.value.status == 422
    assert vocabulary.count(["the cat"], most=1000).tokens == 4


def test_tokens_and_token_ids_of_the_text_are_refused_too(encoder: TextEncoder, tmp_path: Path) -> None:
    """They had an answer of their own, 500 without the shape of a refusal."""
    tiny_serving(tmp_path)
    vocabulary = Vocabulary(tmp_path)
    with pytest.raises(Refusal, match="cannot read") as refused:
        vocabulary.tokens(["the cat", PANICS], prompt=None, special=True)
    assert refused.value.status == 422
    vocabulary._tokenizer.decode = lambda ids, **_: PANICS  # type: ignore[method-assign]
    with pytest.raises(Refusal, match="cannot read") as refused:
        vocabulary.texts_of_ids([[4, 5]])
    assert refused.value.status == 422
