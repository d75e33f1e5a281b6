"""A probe in a process of its own, seen from the parent: texts and shapes in, arrays and rounds out."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np

from trimaran.core.artifact import Artifact
from trimaran.core.choices import Rows
from trimaran.core.errors import ChildError
from trimaran.core.isolation import Held, Worker
from trimaran.core.proof_effort import ProofEffort
from trimaran.core.samples import Round, Shape
from trimaran.core.scratch import ScratchFolder
from trimaran.judging.probe import Probe
from trimaran.runtime.text import Array, Text

REST_LIMIT_S = 1.0
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def thread_environment(threads: int) -> dict[str, str]:
    """The same threads for every library, whoever reads which variable."""
    count = str(threads)
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    return {**dict.fromkeys(names, count), "TOKENIZERS_PARALLELISM": "false"}


def probe_environment(artifact: Artifact, threads: int, variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """What the process of a probe has beside this one's environment."""
    return {**thread_environment(threads), **artifact.execution_environment, **(variables or {})}


class ProbeProcess:
    """Every call raises the child's own error, or ChildError when it died or passed its deadline."""

    def __init__(
        self,
        artifact: Artifact,
        *,
        threads: int,
        environment: Mapping[str, str] | None = None,
        deadline_s: float,
        cores: Sequence[int] = (),
        options: Mapping[str, Any] | None = None,
        verify: bool = True,
        worker: Worker | None = None,
    ) -> None:
        """`worker` is a child that others use as well: it keeps its own environment, and is left open."""
        self._deadline_s = deadline_s
        self._folder = ScratchFolder("probe")
        self._shared = worker is not None
        self._worker = worker or Worker(environment=probe_environment(artifact, threads, environment))
        self._probe: Held[Probe] | None = None
        try:
            self._probe = self._worker.hold(
                Probe,
                deadline_s,
                directory=str(artifact.directory.absolute()),
                threads=threads,
                cores=list(cores),
                options=dict(options or {}),
                verify=verify,
            )
            self.load_s = float(self._call(Probe.load_s))
        except BaseException:  # nobody else knows the child yet, so none is left behind
            self.close()
            raise

    @property
    def peak_memory_bytes(self) -> int:
        return self._worker.peak_memory_bytes

    def answers(self, texts: Sequence[Text], rows: Rows, *, alone: bool = False) -> dict[str, Array]:
        """Outputs in the order of the texts, under a rows policy; `alone` is each by itself, padded as that says."""
        result = self._path("answers.npz")
        self._call(Probe.answers, texts_path=self._texts(texts), result_path=result, rows=rows, alone=alone)
        return _arrays(result)

    def among_neighbours(
        self, texts: Sequence[Text], rows: Rows, seed: int, effort: ProofEffort | None = None
    ) -> tuple[list[int], dict[str, Array]]:
        """Outputs of sampled texts run in full batches, and which texts they are."""
        result = self._path("batched.npz")
        indices = self._call(
            Probe.among_neighbours,
            texts_path=self._texts(texts),
            result_path=result,
            rows=rows,
            seed=seed,
            effort=asdict(effort) if effort else None,
        )
        return list(indices), _arrays(result)

    def measure(
        self,
        shape: Shape,
        rows: Rows,
        *,
        minimum_samples: int,
        minimum_time_s: float,
        warmup_samples: int,
        warmup_time_s: float,
        repeat: int = 1,
    ) -> Round:
        facts = self._call(
            Probe.measure,
            batch=shape.batch,
            sequence=shape.sequence,
            rows=rows,
            minimum_samples=minimum_samples,
            minimum_time_s=minimum_time_s,
            warmup_samples=warmup_samples,
            warmup_time_s=warmup_time_s,
            repeat=repeat,
        )
        return Round.model_validate(facts)

    def take_texts(self, texts: Sequence[Text], rows: Rows) -> dict[str, int]:
        """Gives the texts of the scenarios that follow; returns n, tokens, longest and truncated."""
        return dict(self._call(Probe.take_texts, texts_path=self._texts(texts), rows=rows))

    def run_texts(self, what: str, **settings: Any) -> dict[str, Any]:
        return dict(self._call(Probe.run_texts, what=what, settings=settings))

    def resident(self) -> dict[str, int]:
        return dict(self._call(Probe.resident))

    def rest(self) -> None:
        self._call(Probe.rest, limit_s=REST_LIMIT_S)

    def close(self) -> None:
        if not self._shared:
            self._worker.close()
        elif self._probe:
            # A child that died has been reported, and holds nothing.
            with contextlib.suppress(ChildError):
                self._probe.release()
        self._folder.cleanup()

    def __enter__(self) -> ProbeProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _call(
        self,
        method: Callable[Concatenate[Probe, Parameters], Result],
        *arguments: Parameters.args,
        **keywords: Parameters.kwargs,
    ) -> Result:
        assert self._probe is not None, "the probe is opened first"
        return self._probe.call(method, self._deadline_s, *arguments, **keywords)

    def _path(self, name: str) -> str:
        return str(Path(self._folder.name) / name)

    def _texts(self, texts: Sequence[Text]) -> str:
        path = self._path("texts.json")
        Path(path).write_text(json.dumps(list(texts)), encoding="utf-8")
        return path


def _arrays(path: str) -> dict[str, Array]:
    with np.load(path) as file:
        return {name: file[name] for name in file.files}
