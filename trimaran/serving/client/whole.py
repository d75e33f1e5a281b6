"""Vectors of texts that are longer than a model reads, from pieces of them that are read whole."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from trimaran.core.choices import Overflow
from trimaran.core.whole_texts import WholeTexts
from trimaran.serving.client import calls, given
from trimaran.serving.client.given import TextOrTexts
from trimaran.serving.client.results import Embeddings

if TYPE_CHECKING:
    from trimaran.serving.client.core import ClientCore


async def embed_whole(
    core: ClientCore, name: str, texts: TextOrTexts, *, prompt: str | None, overflow: Overflow
) -> Embeddings:
    """One row for each text; a text that was cut is halved until all its pieces are read."""
    whole, vectors = WholeTexts(given.texts_or_pairs(texts).rows, overflow), []
    while whole.pending:
        pieces = [piece.text for piece in whole.pending]
        build = functools.partial(calls.embed_noting_cuts, texts=pieces, prompt=prompt)
        rows, cut = await core.ask(name, build)
        vectors.append(rows[whole.split(cut)])
    width = (await core.model(name)).outputs["EMBEDDING"]
    return whole.joined(np.concatenate([np.empty((0, *width), np.float32), *vectors]))
