"""How many texts and tokens a proof takes: fewer for a large model, and as many as still prove its gates.

MiniLM computes 21 million multiplications for a token, Qwen3-0.6B 440 million: what takes a minute of the one takes
twenty of the other. So a large model is judged on 24 texts of each kind. 648 texts prove the same gates on shares and
tails as 1,668 do: a tail of 1 % by their second largest change, with an error of 0.0125 (four lossy candidates).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from trimaran.core.corpus import kinds_of, spread
from trimaran.runtime.text import Text

Given = TypeVar("Given", bound=Text)
# Multiplications for a token in the layers: 24 layers of 1024, such as BERT-large and bge-m3, have 300 million.
LARGE_FROM = 200e6
_PER_LAYER = 12


@dataclass(frozen=True)
class ProofEffort:
    # Shipped texts of each kind that judge; None: all of them.
    judging_of_kind: int | None
    # Most tokens of a call at a corner of the profile, where the graph is held against eager PyTorch.
    corner_tokens: int | None
    # Texts that say how far each dimension of a vector reaches.
    range_texts: int
    # Texts of the certificate's full batches, and how many of them are also padded to the longest sequence.
    certificate_texts: int
    fully_padded: int
    # Most tokens of its other calls, but for two long texts.
    call_tokens: int
    # Texts that calibrate a searched candidate, and texts that are held out to try layers on.
    calibrating: int
    held_out: int
    # If all layers can be in INT8, seconds in which the cost of each is measured for the report.
    reporting_s: float


USUAL = ProofEffort(
    judging_of_kind=None, corner_tokens=None, range_texts=256, certificate_texts=32, fully_padded=8, call_tokens=640,
    calibrating=280, held_out=280, reporting_s=25.0,
)  # fmt: skip
LARGE = ProofEffort(
    judging_of_kind=24, corner_tokens=2048, range_texts=64, certificate_texts=8, fully_padded=2, call_tokens=160,
    calibrating=96, held_out=160, reporting_s=0.0,
)  # fmt: skip


def proof_effort(layers: int, hidden: int) -> ProofEffort:
    return LARGE if _PER_LAYER * layers * hidden**2 >= LARGE_FROM else USUAL


def effort_for(details: Mapping[str, Any]) -> ProofEffort:
    """By the details of a manifest. A user's own module says nothing of its size."""
    return proof_effort(int(details.get("layers", 0)), int(details.get("hidden", 0)))


def some_of_each_kind(texts: Sequence[Given], most: int) -> tuple[Given, ...]:
    """At most so many texts of each kind, evenly spaced within it, in the order of all texts."""
    by_kind: dict[str, list[int]] = defaultdict(list)
    for index, kind in enumerate(kinds_of(texts)):
        by_kind[kind].append(index)
    return tuple(texts[index] for index in sorted(index for kind in by_kind.values() for index in spread(kind, most)))
