"""What all shrunk models have in common: what is copied, where they may stand, and what their reports begin with."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import trimaran
from trimaran.core.errors import UsageError
from trimaran.core.persisted import Persisted
from trimaran.core.spec import ModelRef
from trimaran.export.checkpoint import weight_files, weights_of

CARD = "README.md"
# Of the encoder's folder. Other folders hold weights that stay, such as Dense layers.
_WEIGHTS = ("*.safetensors", "*.bin", "*.index.json", "*.h5", "*.msgpack")
_GRAPHS = ("*.onnx", "*.onnx_data", "*.xml", "onnx", "openvino", ".git")


class StudentReport(Persisted):
    """What every way of shrinking reports."""

    indent: ClassVar[int | None] = 1

    created: str
    trimaran: str
    teacher: str
    # Of the checkpoint that was shrunk.
    teacher_digest: str
    bytes_before: int
    bytes_after: int


def common_facts(teacher: ModelRef, size_bytes: int) -> dict[str, Any]:
    """The fields of a `StudentReport`."""
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "trimaran": trimaran.__version__,
        "teacher": teacher.name,
        "teacher_digest": teacher.digest,
        "bytes_before": weight_bytes(Path(teacher.directory)),
        "bytes_after": size_bytes,
    }


def free_folder(output: Path) -> Path:
    """The absolute path of a folder that is new or empty. Raises UsageError for any other."""
    output = output.absolute()
    if output.exists() and (output.is_file() or any(output.iterdir())):
        raise UsageError(f"{output} holds something already.", hint="Name an empty or a new folder.")
    return output


def copy_rest(ref: ModelRef, target: Path) -> Path:
    """Copies everything but the encoder's weights and the graphs of other engines. Returns the encoder's new folder."""
    root, body = Path(ref.root).resolve(), Path(ref.directory).resolve()

    def left_out(folder: str, names: list[str]) -> set[str]:
        patterns = (*_GRAPHS, *_WEIGHTS) if Path(folder) == body else _GRAPHS
        return {name for pattern in patterns for name in names if Path(name).match(pattern)}

    shutil.copytree(root, target, dirs_exist_ok=True, ignore=left_out)
    return target / body.relative_to(root)


def weight_bytes(body: Path) -> int:
    return sum(path.stat().st_size for path in weight_files(weights_of(body, str(body))))
