"""One peer inside a child process of its own environment: answers texts and times itself, as trimaran's probe does.

A peer is a class in a script beside this one: `Peer(model, work, threads, **options)` with `encode(texts)`, which
returns one vector a text; `prepare(model, work, **options)` makes once what is not part of starting (an export).
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np

from trimaran.core.isolation import peak_memory_bytes
from trimaran.judging.probe import timed_calls

BATCH = 32


def prepare(script: str, model: str, work: str, texts_path: str, options: dict[str, Any]) -> None:
    """Leaves in `work` what the peer loads; does nothing when it is there, made by this script from these texts."""
    module = importlib.import_module(script)
    folder, texts = Path(work), _texts(texts_path)
    made_from = [Path(str(module.__file__)).read_text(encoding="utf-8"), model, texts, options]
    digest = hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()
    done = folder / ".prepared"
    if done.is_file() and done.read_text(encoding="utf-8") == digest:
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    module.prepare(Path(model), folder, texts=texts, **options)
    done.write_text(digest, encoding="utf-8")


class PeerProbe:
    """Lives in an `isolation.Worker`: arguments and results are JSON, vectors travel as .npy files."""

    def __init__(
        self, script: str, model: str, work: str, threads: int, cores: list[int], options: dict[str, Any]
    ) -> None:
        if cores:
            os.sched_setaffinity(0, cores)
        begun_s = time.perf_counter()
        self._peer = importlib.import_module(script).Peer(Path(model), Path(work), threads=threads, **options)
        self._load_s = time.perf_counter() - begun_s

    def load_s(self) -> float:
        return self._load_s

    def answers(self, texts_path: str, result_path: str, batch: int) -> int:
        """Writes one vector a text, asked `batch` at a time; returns how many."""
        texts = _texts(texts_path)
        parts = [np.asarray(self._peer.encode(texts[at : at + batch])) for at in range(0, len(texts), batch)]
        np.save(result_path, np.concatenate(parts).astype(np.float32))
        return len(texts)

    def measure(self, texts_path: str, **effort: Any) -> dict[str, list[int]]:
        """Times one call with all of these texts."""
        texts = _texts(texts_path)
        return timed_calls(lambda: self._peer.encode(texts), **effort)

    def place(self) -> dict[str, str] | None:
        """Where load may be put on it, when it is a server."""
        found = getattr(self._peer, "place", None)
        return found() if found else None

    def memory_bytes(self) -> int:
        """The largest resident set of the process that has the model: this one, unless the peer is a server."""
        found = getattr(self._peer, "memory_bytes", None)
        return int(found()) if found else peak_memory_bytes()

    def rest(self, limit_s: float) -> float:
        """Waits until this process and a server of its own use no CPU."""
        pids = [os.getpid(), *getattr(self._peer, "pids", list)()]
        begun_s = time.monotonic()
        while time.monotonic() - begun_s < limit_s:
            before_s = _cpu_s(pids)
            time.sleep(0.05)
            if _cpu_s(pids) - before_s < 0.011:
                break
        return time.monotonic() - begun_s

    def close(self) -> None:
        if hasattr(self._peer, "close"):
            self._peer.close()


def _texts(path: str) -> list[str]:
    return list(json.loads(Path(path).read_text(encoding="utf-8")))


def _cpu_s(pids: list[int]) -> float:
    ticks = 0
    for pid in pids:
        stat = Path(f"/proc/{pid}/stat")
        if stat.is_file():
            fields = stat.read_text(encoding="utf-8").rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")
