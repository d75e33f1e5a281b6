"""`serving.json`: what the Python stage of a model must know at run time, as it was proven."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from trimaran.core.allowed import BackendName, PathInside, StoredEngineOptions, Threads, Variables
from trimaran.core.choices import Rows
from trimaran.core.errors import UsageError
from trimaran.core.instructions import ProductsBy
from trimaran.core.persisted import Persisted
from trimaran.core.spec import ShapeProfile, TokenizerSpec
from trimaran.core.store import write_atomically
from trimaran.runtime.text import STRETCH

SERVING_FILE = "serving.json"
# The backend of a stage that calls its engine as another model of the server.
BLS = "bls"


class Serving(Persisted):
    """`serving.json`: what a stage must know at run time, as it was proven.

    `rows_a_call` and `stretch` say how the text stage groups rows for its engine, where `trimaran tune` measured that:
    at most `rows_a_call` rows (0 is the largest batch), the longest at most `stretch` times as long as the shortest.
    `streams` groups go through it side by side.
    """

    what: ClassVar[str] = "serving.json"
    remedy: ClassVar[str] = "Remove this version and lay the artifact out again."
    indent: ClassVar[int | None] = 2

    task: str
    backend: BackendName
    # The file that the engine opens, or the model that a BLS stage calls.
    entry: PathInside
    rows: Rows
    threads: Threads
    labels: tuple[str, ...]
    facts: dict[str, Any]
    tokenizer: TokenizerSpec
    profile: ShapeProfile
    engine_options: StoredEngineOptions
    execution_environment: Variables
    rows_a_call: int = Field(default=0, ge=0)
    stretch: float = Field(default=STRETCH, ge=1.0)
    streams: int = Field(default=1, ge=1, le=4096)
    # What INT8 products were computed with where it was proven; empty for float, and for versions made before.
    proven_on: tuple[ProductsBy, ...] = ()

    def calling(self, model: str, outputs: tuple[str, ...]) -> Serving:
        """The same with the engine as another model of the server."""
        return self.model_copy(update={"backend": BLS, "entry": model, "engine_options": {"outputs": list(outputs)}})


def read_serving(version: Path) -> Serving:
    """`version` is a version folder of a model. Raises UsageError without the file, IntegrityError when damaged."""
    path = version / SERVING_FILE
    if not path.is_file():
        raise UsageError(
            f"{version} was not laid out by trimaran: it has no {SERVING_FILE}.",
            hint="`trimaran deploy` makes models that can be served.",
        )
    return Serving.read(path)


def write_serving(version: Path, serving: Serving) -> None:
    write_atomically(version / SERVING_FILE, serving.to_json())
