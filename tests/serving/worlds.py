"""Repositories and processes for the tests of serving, and the answers of the tiny encoder worked out by hand."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.model_repository.worlds import ir_artifact
from tests.tiny import HIDDEN, LABELS, WORDS, tiny_artifact
from trimaran.model_repository.layout import lay_out
from trimaran.runtime.text import Text

TEXTS: tuple[str, ...] = ("the cat sat", "dog", "the good dog ran", "", "bad bad cat", "the dog sat", "猫 unknown")

SLOW_MODEL = '''
import time
from pathlib import Path
import numpy as np
import triton_python_backend_utils as triton


class TritonPythonModel:
    """Answers with the length of each text; a number is slept first, in seconds, and leaves a mark."""

    def execute(self, requests):
        responses = []
        for request in requests:
            texts = triton.get_input_tensor_by_name(request, "TEXT").as_numpy().ravel()
            for text in texts:
                if text.replace(b".", b"").isdigit():
                    (Path(__file__).parent / "asleep").touch()
                    time.sleep(float(text))
            lengths = np.array([[len(text)] for text in texts], np.float32)
            responses.append(triton.InferenceResponse([triton.Tensor("EMBEDDING", lengths)]))
        return responses
'''
SLOW_CONFIG = """
name: "slow" backend: "python" max_batch_size: 1
input { name: "TEXT" data_type: TYPE_STRING dims: 1 }
output { name: "EMBEDDING" data_type: TYPE_FP32 dims: 1 }
instance_group { count: 1 kind: KIND_CPU }
dynamic_batching { default_queue_policy { max_queue_size: 1 } }
"""


def tiny_repository(root: Path) -> Path:
    """Both tasks on both engines, under every rows policy, and one real IR."""
    repository = root / "repository"
    for name, artifact, rows in (
        ("vectors", tiny_artifact(root / "s"), "equal-length"),
        ("classes", tiny_artifact(root / "s", task="text-classification"), "padded"),
        ("vectors-ov", tiny_artifact(root / "s", backend="openvino"), "alone"),
        ("classes-ov", ir_artifact(root / "s", task="text-classification"), "padded"),
    ):
        lay_out(artifact, repository=repository, name=name, rows=rows, threads=1)  # type: ignore[arg-type]
    return repository


def slow_repository(root: Path) -> Path:
    """A model from elsewhere that takes its time when asked to."""
    version = root / "repository" / "slow" / "1"
    version.mkdir(parents=True)
    (version / "model.py").write_text(SLOW_MODEL)
    (version.parent / "config.pbtxt").write_text(SLOW_CONFIG)
    return root / "repository"


def by_hand(texts: Sequence[Text], *, width: int = HIDDEN) -> npt.NDArray[np.float32]:
    """The mean of the table's rows of the tokens, specials included."""
    table = np.random.default_rng(7).standard_normal((len(WORDS), width)).astype(np.float32)
    rows = []
    for text in texts:
        parts = [text] if isinstance(text, str) else list(text)
        ids = [2]
        for part in parts:
            ids += [WORDS.index(word) if word in WORDS else 1 for word in part.split()] + [3]
        rows.append(table[ids].mean(axis=0))
    return np.stack(rows)


def logits_by_hand(texts: Sequence[Text]) -> npt.NDArray[np.float32]:
    return by_hand(texts, width=len(LABELS))


def processes_with(word: str) -> list[int]:
    """Processes whose command line holds the word."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word.encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def shared_memory_with(word: str) -> list[str]:
    return [path.name for path in Path("/dev/shm").iterdir() if word in path.name]


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def eventually(condition: Callable[[], Any], *, within_s: float = 40.0) -> bool:
    end = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True
