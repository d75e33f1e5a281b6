"""Fetches a model from the hub: all that a deployment reads of it, and nothing else."""

from __future__ import annotations

from pathlib import Path

from trimaran.core.errors import UsageError
from trimaran.core.tasks.hybrid_embedding import HEAD_FILES
from trimaran.export.checkpoint import SAFETENSORS
from trimaran.export.sentence import encoder_folder, sentence_modules

# Heads and Dense modules of older folders are pickles. They are small, and no code in them is run.
_PATTERNS = ("*.json", "*.txt", "*.model", "*.jinja", "*.safetensors", "*/pytorch_model.bin", *HEAD_FILES)
# Weights of a repository that has no safetensors, such as BAAI/bge-m3.
_PICKLES = ("pytorch_model*.bin",)
# Exports for other engines, which may be as large as the model.
_OTHERS = ("onnx/*", "openvino/*")


def fetched(source: str, *, revision: str | None) -> Path:
    """The folder of a snapshot. Pickled weights are fetched only where there are no others."""
    from huggingface_hub import snapshot_download

    def snapshot(*patterns: str) -> Path:
        return Path(
            snapshot_download(source, revision=revision, allow_patterns=[*patterns], ignore_patterns=[*_OTHERS])
        )

    folder = snapshot(*_PATTERNS)
    return folder if _has_safetensors(folder) else snapshot(*_PATTERNS, *_PICKLES)


def _has_safetensors(folder: Path) -> bool:
    try:
        body = encoder_folder(folder, sentence_modules(folder))
    except UsageError:  # networks by route, or a module that is refused: `locate` says more of it
        return any(folder.rglob(SAFETENSORS[0]))
    return any((body / name).is_file() for name in SAFETENSORS)
