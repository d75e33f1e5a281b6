"""One look at a tiny encoder and at its INT8 engine, for all tests of this folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from trimaran.core.progress import SilentProgress

if TYPE_CHECKING:
    from tests.quantize.tensorrt.engines import World
    from trimaran.pipeline.look.look import Look

# Words of the tiny tokenizer, and what must be escaped.
TEXTS = ("the cat sat on the mat", "a </script><b>dog</b> & the road")
OTHERS = tuple(
    f"the {first} and a {second}" for first in ("cat", "dog", "road", "mat") for second in ("good", "road", "cat")
)


@pytest.fixture(scope="package")
def texts_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("texts") / "texts.txt"
    path.write_text("\n".join(OTHERS) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="package")
def seen(world: World, texts_file: Path) -> Look:
    """A look at an INT8 engine."""
    from trimaran.pipeline.look.look import look

    engine = world.graph("bert", "openvino-int8-weights")
    return look(
        str(engine.directory), TEXTS, text_file=texts_file, store=world.store.root, threads=1, progress=SilentProgress()
    )
