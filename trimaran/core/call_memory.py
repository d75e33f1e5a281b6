"""How much memory a call of an encoder takes, so that a long text is refused before it fills the machine.

Attention as ONNX Runtime computes it keeps the scores of all pairs of tokens, for every head. ModernBERT-base with one
text of 8,192 tokens took 8.8 GB; this estimate says 10.1 GB. In OpenVINO it took 2.8 GB.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from trimaran.core.artifact import MANIFEST, Artifact, Draft
from trimaran.core.errors import IntegrityError, UsageError
from trimaran.core.spec import ShapeProfile

# Attention in blocks of so many queries, and in an artifact's details how many attentions are computed so.
BLOCK, ATTENTION_BLOCKS = 512, "attention_blocks"
# Vectors of each token, and copies of the scores that are alive at the same time, by engine.
_VECTORS, _SCORES = 16, 3
_SCORES_IN = {"onnxruntime": _SCORES, "openvino": 1}
_FLOAT_BYTES = 4
# Of the memory that is free now, for one call of a proof.
_SHARE = 0.5


class ModelSize(NamedTuple):
    """What the memory of a call depends on."""

    heads: int
    hidden: int


class ProofShapes(NamedTuple):
    # (batch, sequence) shapes at which a claim is checked.
    shapes: tuple[tuple[int, int], ...]
    # Which corners of the profile were checked with fewer rows, and why; "" for none.
    reduced: str


def model_size(details: Mapping[str, Any]) -> ModelSize:
    """By the details of a manifest. Nothing is known of a user's own module."""
    return ModelSize(int(details.get("heads", 0)), int(details.get("hidden", 0)))


def call_bytes(size: ModelSize, batch: int, sequence: int, *, queries: int | None = None, scores: int = _SCORES) -> int:
    """Memory of one call besides the weights. So many queries of a text are computed at once; by default all."""
    each = size.heads * (queries or sequence) * scores + size.hidden * _VECTORS
    return batch * sequence * each * _FLOAT_BYTES


def longest_call_bytes(served: Draft) -> int:
    """Memory of the longest text in the engine that the artifact is for. 0 for engines on a GPU."""
    if served.backend not in _SCORES_IN:
        return 0
    longest, details = served.profile.sequence.maximum, served.details
    in_blocks = details.get(ATTENTION_BLOCKS) == details.get("layers")
    queries = min(BLOCK, longest) if in_blocks else longest
    return call_bytes(model_size(details), 1, longest, queries=queries, scores=_SCORES_IN[served.backend])


def budget_bytes() -> int:
    return int(_SHARE * min(psutil.virtual_memory().available, memory_limit_bytes()))


def memory_limit_bytes(control_group: Path = Path("/sys/fs/cgroup/memory.max")) -> int:
    """The machine's memory, or less in a container with a limit."""
    total = int(psutil.virtual_memory().total)
    words = control_group.read_text(encoding="utf-8").strip() if control_group.is_file() else ""
    return min(total, int(words)) if words.isdecimal() else total


def require_memory_here(version: Path) -> None:
    """`version` is a version folder. Raises IntegrityError where the longest text would never fit into the memory.

    What other processes hold does not count: it may be free again when such a text comes.
    """
    if not (version / MANIFEST).is_file():
        return
    served, limit = Artifact.read(version / MANIFEST), memory_limit_bytes()
    longest, needed = served.profile.sequence.maximum, served.size_bytes + longest_call_bytes(served)
    if needed > limit:
        raise IntegrityError(
            f"{version.parent.name} version {version.name} takes about {needed / 1e9:,.1f} GB for one text of "
            f"{longest:,} tokens, and this machine has {limit / 1e9:,.1f} GB: such a text would end the server.",
            hint="Deploy it for shorter texts (--sequence), or give the server more memory.",
        )


def rows_that_fit(size: ModelSize, sequence: int, most: int, budget: int) -> int:
    """How many texts of this length fit into one call; 0 if not even one does."""
    return min(most, budget // max(1, call_bytes(size, 1, sequence)))


def proof_shapes(size: ModelSize, profile: ShapeProfile, budget: int, *, most_tokens: int | None = None) -> ProofShapes:
    """The corners of the profile, with fewer rows where a whole batch would not fit into the memory.

    `most_tokens` of a call save time: rows are independent, so few of them prove as much as a whole batch.
    Raises UsageError if one text of the longest sequence does not fit.
    """
    require_memory(size, profile, budget)
    corners = profile.corners()
    fitting = [(rows_that_fit(size, sequence, batch, budget), sequence) for batch, sequence in corners]
    memory_is_short = fitting != list(corners)
    if most_tokens is not None:
        fitting = [(min(rows, max(1, most_tokens // sequence)), sequence) for rows, sequence in fitting]
    reduced = [
        f"{whole[0]}x{whole[1]} with {part[0]} rows"
        for whole, part in zip(corners, fitting, strict=True)
        if whole != part
    ]
    reason = f"{budget / 1e9:.1f} GB of memory" if memory_is_short else "the size of the model"
    words = f"{', '.join(reduced)}, for {reason}" if reduced else ""
    return ProofShapes(tuple(dict.fromkeys(fitting)), words)


def require_memory(size: ModelSize, profile: ShapeProfile, budget: int) -> None:
    """Raises UsageError if one text of the profile's longest sequence does not fit."""
    longest = profile.sequence.maximum
    needed = call_bytes(size, 1, longest)
    if needed <= budget:
        return
    fits = longest
    while fits > 1 and call_bytes(size, 1, fits) > budget:
        fits //= 2
    raise UsageError(
        f"One text of {longest:,} tokens takes about {needed / 1e9:.1f} GB; {budget / 1e9:.1f} GB may be used for it "
        "on this machine.",
        hint=f"Deploy it for shorter texts (--sequence with a maximum of {fits:,}), or free memory.",
        wanted=needed,
        found=budget,
    )
