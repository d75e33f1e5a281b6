"""Whether an INT8 model was proven with the instructions that this CPU has: other ones give other answers."""

from __future__ import annotations

from pathlib import Path

from trimaran.core.errors import IntegrityError
from trimaran.core.instructions import products_by
from trimaran.core.serving_json import SERVING_FILE, Serving, read_serving

_WORDS = {"vnni": "a CPU with VNNI", "without-vnni": "a CPU without VNNI"}


def needs_proof(serving: Serving) -> bool:
    """Float models, and versions that were laid out before, do not say where they were proven: they need none."""
    return bool(serving.proven_on) and products_by(serving.execution_environment) not in serving.proven_on


def require_proof_here(version: Path) -> None:
    """`version` is a version folder. Raises IntegrityError where its INT8 proof was made with other instructions."""
    if not (version / SERVING_FILE).is_file():
        return
    serving = read_serving(version)
    if needs_proof(serving):
        proven = " and ".join(_WORDS[products] for products in serving.proven_on)
        here = _WORDS[products_by(serving.execution_environment)]
        raise IntegrityError(
            f"{version.parent.name} version {version.name} was proven on {proven}, and this is {here}: INT8 answers "
            "differ between them.",
            hint=f"`trimaran finish {version.parent.parent} {version.parent.name}` proves it here. Where it cannot, "
            "deploy the model on this machine.",
        )
