"""What the folders of all shrunk models have in common: what is copied, how large they are, where they may stand."""

from __future__ import annotations

import shutil
from pathlib import Path

from trimaran.core.errors import UsageError
from trimaran.core.spec import ModelRef
from trimaran.export.checkpoint import weight_files, weights_of

CARD = "README.md"
# Of the encoder's folder. Other folders hold weights that stay, such as Dense layers.
_WEIGHTS = ("*.safetensors", "*.bin", "*.index.json", "*.h5", "*.msgpack")
_GRAPHS = ("*.onnx", "*.onnx_data", "*.xml", "onnx", "openvino", ".git")


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
