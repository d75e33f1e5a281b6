"""Warm-up requests, which Triton sends before it reports a model as ready: texts, and tokens over the profile."""

from __future__ import annotations

from trimaran.core.artifact import Artifact
from trimaran.core.model_config import Warmup, WarmupInput
from trimaran.core.spec import ShapeProfile, TensorSpec
from trimaran.core.tasks import task
from trimaran.model_repository.tensors import DATA_TYPES, without_batch

WARMUP_FOLDER = "warmup"
# For inputs that must stay short, such as a question, which would leave no room for its context. A refused warm-up
# makes Triton 2.51 exit without a message.
_BRIEF_WORDS = 3


def text_warmups(artifact: Artifact) -> tuple[Warmup, ...]:
    return tuple(Warmup(name=f"{words} words", inputs=_texts(artifact, words)) for words in _lengths(artifact.profile))


def tensor_warmups(artifact: Artifact, *, corners: bool) -> tuple[Warmup, ...]:
    """At two lengths, or at all `corners` of the profile: a GPU engine prepares itself for each shape."""
    shapes = artifact.profile.corners() if corners else [(1, tokens) for tokens in _lengths(artifact.profile)]
    return tuple(
        Warmup(
            name=f"{batch} x {tokens} tokens",
            batch_size=batch,
            inputs=tuple(_tokens(spec, batch, tokens) for spec in artifact.signature.inputs),
        )
        for batch, tokens in shapes
    )


def warmup_files(artifact: Artifact) -> dict[str, bytes]:
    """File name to content: texts with Triton's length prefix, and masks of ones."""
    files: dict[str, bytes] = {}
    for length in (_BRIEF_WORDS, *_lengths(artifact.profile)):
        text = ("the " * length).strip().encode()
        files[f"{length}-words"] = len(text).to_bytes(4, "little") + text
        files[f"{length}-words-twice"] = 2 * files[f"{length}-words"]
    for batch, length in {*artifact.profile.corners(), *((1, length) for length in _lengths(artifact.profile))}:
        files[f"{batch}x{length}-ones"] = (1).to_bytes(8, "little") * (batch * length)
    return files


def _lengths(profile: ShapeProfile) -> tuple[int, ...]:
    return tuple(dict.fromkeys((profile.clamp_sequence(8), profile.sequence.typical)))


def _texts(artifact: Artifact, words: int) -> tuple[WarmupInput, ...]:
    texts = []
    for field in task(artifact.task).served.inputs:
        if not field.optional:
            size = f"{_BRIEF_WORDS if field.brief else words}-words"
            file, dims = (f"{size}-twice", (2,)) if field.many else (size, (1,))
            texts.append(WarmupInput(name=field.name, data_type="TYPE_STRING", dims=dims, file=file))
    return tuple(texts)


def _tokens(spec: TensorSpec, batch: int, tokens: int) -> WarmupInput:
    dims = tuple(tokens if dim == -1 else dim for dim in without_batch(spec))
    # Zero is a token of every vocabulary, but an all-zero mask attends to nothing.
    file = f"{batch}x{tokens}-ones" if spec.name == "attention_mask" else None
    return WarmupInput(name=spec.name, data_type=DATA_TYPES[spec.dtype], dims=dims, file=file)
