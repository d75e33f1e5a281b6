"""`config.json` of a BiLSTM student: what its weights are, how it reads texts, and what its numbers mean."""

from __future__ import annotations

from typing import ClassVar, Literal

from trimaran.core.persisted import Persisted
from trimaran.core.spec import Activation

MODEL_TYPE: Literal["trimaran-bilstm"] = "trimaran-bilstm"
CONFIG, WEIGHTS = "config.json", "model.safetensors"


class BiLstmConfig(Persisted):
    what: ClassVar[str] = "config of a BiLSTM student"
    remedy: ClassVar[str] = "Copy the whole folder, or run `trimaran shrink --to bilstm` again."
    indent: ClassVar[int | None] = 1

    model_type: Literal["trimaran-bilstm"] = MODEL_TYPE
    task: Literal["embedding", "text-classification"]
    # Rows of the token table, and the width of a token.
    vocabulary: int
    table: int = 128
    # Width of the LSTM in each direction, and of the layer behind it.
    hidden: int = 256
    dense: int = 512
    # Numbers of an answer: the length of a vector, or the labels.
    width: int
    # Vectors have unit length, as the teacher's have.
    unit_length: bool = False
    labels: tuple[str, ...] = ()
    activation: Activation = "softmax"
    # Tokens at which the teacher's library cuts a text, if it says so.
    default_sequence: int | None = None
    prompts: dict[str, str] = {}
    default_prompt: str = ""
    pad_id: int = 0
    cut_side: Literal["left", "right"] = "right"
