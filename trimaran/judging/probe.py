"""One artifact, opened inside a child process, that answers texts and times itself."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trimaran.core.artifact import Artifact, load_artifact
from trimaran.core.backends import Arrays, Session, backend, open_session
from trimaran.core.corpus import encoder_of
from trimaran.core.pinning import pin
from trimaran.core.proof_effort import ProofEffort, effort_for
from trimaran.core.tasks import task
from trimaran.core.undisturbed import Disturbance
from trimaran.judging.invariance import NEIGHBOURS, certificate_groups
from trimaran.judging.probe_texts import TextRuns
from trimaran.runtime.prompts import prompt_words, prompted
from trimaran.runtime.text import (
    MOST_PAIRS,
    SEQUENCE_AXES,
    Row,
    Text,
    batch_of,
    infer_rows,
    joined_rows,
    mask_of,
    unpadded,
)

# What opening an engine imports beside the module of its backend, and takes long.
_IMPORTED_WITH = {"torch": ("transformers.modeling_utils",)}


def import_engine(backend_name: str) -> None:
    """Imports an engine's libraries, which takes one core and, of PyTorch, seconds."""
    for module in (backend(backend_name).module, *_IMPORTED_WITH.get(backend_name, ())):
        importlib.import_module(module)


class Probe:
    """Lives in an `isolation.Worker`, so its arguments and results are JSON; arrays travel as .npz files."""

    def __init__(
        self,
        directory: str,
        threads: int,
        cores: Sequence[int] = (),
        options: Mapping[str, Any] | None = None,
        verify: bool = True,
    ) -> None:
        pin(tuple(cores))
        artifact = load_artifact(Path(directory), verify=verify)
        changed = {"engine_options": {**artifact.engine_options, **(options or {})}}
        self._artifact = artifact.model_copy(update=changed).at(artifact.directory)
        self._texts: TextRuns | None = None
        self._before_open_bytes = resident_bytes()
        begun_s = time.perf_counter()
        self._stack = contextlib.ExitStack()
        self._session: Session = self._stack.enter_context(open_session(self._artifact, threads=threads))
        self._load_s = time.perf_counter() - begun_s
        self._after_open_bytes = resident_bytes()
        self._encoder = encoder_of(self._artifact)

    def load_s(self) -> float:
        """Seconds to open the engine; imports and the comparison with the manifest are not the model's doing."""
        return self._load_s

    def resident(self) -> dict[str, int]:
        """Bytes of this process before the engine was opened and right after."""
        return {"before_open_bytes": self._before_open_bytes, "after_open_bytes": self._after_open_bytes}

    def take_texts(self, texts_path: str, rows: str) -> dict[str, int]:
        """Keeps the texts for `stream`, `mixed` and `offline`, and tells what they are to this model."""
        texts = read_texts(Path(texts_path))
        maximum = self._artifact.profile.batch.maximum
        self._texts = TextRuns(self._session.infer, self._encoder, texts, rows=rows, maximum_batch=maximum)
        lengths = [len(row.ids) for row in self._encoder.rows(texts)]
        limit = self._artifact.profile.sequence.maximum
        whole = untruncated_lengths(self._artifact, texts)
        return {
            "n": len(texts),
            "tokens": sum(lengths),
            "longest": max(whole),
            "truncated": sum(length > limit for length in whole),
        }

    def run_texts(self, what: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        """One turn of a scenario over the texts that were taken: `stream`, `mixed` or `offline`."""
        assert self._texts is not None, "take_texts comes first"
        figures: dict[str, Any] = getattr(self._texts, what)(**settings)
        return figures

    def answers(self, texts_path: str, result_path: str, rows: str, alone: bool = False) -> int:
        """Writes the outputs for the texts, in order, run under a rows policy; returns how many.

        `alone`: each by itself, padded as the policy says.
        """
        tokens = self._encoder.rows(read_texts(Path(texts_path)))
        outputs = infer_rows(
            self._judged_outputs,
            self._encoder,
            tokens,
            policy=rows,
            maximum_batch=1 if alone else self._artifact.profile.batch.maximum,
        )
        np.savez(result_path, **outputs)
        return len(tokens)

    def _judged_outputs(self, inputs: Mapping[str, Any]) -> Arrays:
        """The outputs that the task's metrics read."""
        unjudged = task(self._artifact.task).unjudged
        return {name: array for name, array in self._session.infer(inputs).items() if name not in unjudged}

    def among_neighbours(
        self, texts_path: str, result_path: str, rows: str, seed: int, effort: Mapping[str, Any] | None = None
    ) -> list[int]:
        """Writes the outputs of sampled texts run in many batches; returns which texts, in the same order.

        `effort` has the fields of a `ProofEffort`; without it the model's size decides.
        """
        tokens = self._encoder.rows(read_texts(Path(texts_path)))
        size = min(NEIGHBOURS + 1, self._artifact.profile.batch.maximum)
        indices: list[int] = []
        parts: dict[str, list[Any]] = {}
        maximum = self._artifact.profile.sequence.maximum
        chosen = ProofEffort(**effort) if effort else effort_for(self._artifact.details)
        for group in certificate_groups(tokens, rows, size=size, seed=seed, maximum=maximum, effort=chosen):
            inputs = self._encoder.batch(group.rows, length=group.length)
            indices.extend(group.indices)
            for name, array in self._judged_outputs(inputs).items():
                rows_of_output = unpadded(array, mask_of(inputs, group.rows), SEQUENCE_AXES.get(name, ()))
                parts.setdefault(name, []).extend(row.copy() for row in rows_of_output[: len(group.indices)])
        np.savez(result_path, **{name: joined_rows(rows_of_output) for name, rows_of_output in parts.items()})
        return indices

    def measure(
        self,
        *,
        batch: int,
        sequence: int,
        rows: str,
        minimum_samples: int,
        minimum_time_s: float,
        warmup_samples: int,
        warmup_time_s: float = 0.0,
        repeat: int = 1,
    ) -> dict[str, Any]:
        """Times one shape of full-length random token ids, as it would be served under the rows policy.

        `repeat` calls make one sample: an engine that is slower by a known factor, to try the harness on.
        """
        inputs = self._random_inputs(batch, sequence, rows)
        call = serving_call(self._session.infer, inputs, rows)
        disturbance = Disturbance()
        timed = timed_calls(
            call if repeat == 1 else lambda: [call() for _ in range(repeat)],
            minimum_samples=minimum_samples,
            minimum_time_s=minimum_time_s,
            warmup_samples=warmup_samples,
            warmup_time_s=warmup_time_s,
        )
        return {**timed, **disturbance.found()}

    def rest(self, limit_s: float) -> float:
        """Waits until this process uses no CPU: thread pools spin on after a call and would slow the next process."""
        begun_s = time.monotonic()
        while time.monotonic() - begun_s < limit_s:
            before_s = time.process_time()
            time.sleep(0.02)
            if time.process_time() - before_s < 0.002:
                break
        return time.monotonic() - begun_s

    def _random_inputs(self, batch: int, sequence: int, rows: str) -> Arrays:
        from tokenizers import Tokenizer

        vocabulary = Tokenizer.from_file(str(self._artifact.directory / "tokenizer.json")).get_vocab_size()
        ids = np.random.default_rng(0).integers(vocabulary, size=(batch, sequence))
        pad = self._artifact.tokenizer.pad_id
        # RoBERTa counts positions by what is not padding, so a random padding id would change the work.
        ids[ids == pad] = (pad + 1) % vocabulary
        return batch_of(self._encoder, [Row(list(map(int, row)), [0] * sequence) for row in ids], rows)


def serving_call(infer: Callable[[Arrays], Arrays], inputs: Arrays, rows: str) -> Callable[[], object]:
    """One sample: a batch in as many calls as a server makes of it.

    Rows that must run alone have a call each. Else a call has at most `MOST_PAIRS` pairs of tokens.
    """
    batch, sequence = next(iter(inputs.values())).shape[:2]
    most = 1 if rows == "alone" else max(1, MOST_PAIRS // max(1, sequence) ** 2)
    if batch <= most:
        return lambda: infer(inputs)
    calls: list[Mapping[str, Any]] = [
        {name: np.ascontiguousarray(array[begin : begin + most]) for name, array in inputs.items()}
        for begin in range(0, batch, most)
    ]
    return lambda: [infer(call) for call in calls]


def timed_calls(
    call: Callable[[], object],
    *,
    minimum_samples: int,
    minimum_time_s: float,
    warmup_samples: int,
    warmup_time_s: float = 0.0,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> dict[str, list[int]]:
    """Nanoseconds of each call, until there are enough samples AND enough time; warm-ups apart."""
    return {
        "warmup_ns": _timed_until(call, warmup_samples, warmup_time_s, clock),
        "samples_ns": _timed_until(call, minimum_samples, minimum_time_s, clock),
    }


def _timed_until(call: Callable[[], object], samples: int, time_s: float, clock: Callable[[], int]) -> list[int]:
    times_ns: list[int] = []
    spent_ns = 0
    while len(times_ns) < samples or spent_ns < time_s * 1e9:
        begun_ns = clock()
        call()
        times_ns.append(clock() - begun_ns)
        spent_ns += times_ns[-1]
    return times_ns


def untruncated_lengths(artifact: Artifact, texts: list[Text]) -> list[int]:
    """Tokens of each text with the model's default prompt, before the profile cuts it."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(artifact.directory / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    words = prompt_words(artifact.tokenizer.prompts, artifact.tokenizer.default_prompt, None)
    return [len(encoding.ids) for encoding in tokenizer.encode_batch([prompted(text, words) for text in texts])]


def resident_bytes() -> int:
    """What this process holds in memory now; 0 where the system does not tell."""
    path = Path("/proc/self/statm")
    if not path.is_file():
        return 0
    return int(path.read_text(encoding="utf-8").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def read_texts(path: Path) -> list[Text]:
    return [text if isinstance(text, str) else (text[0], text[1]) for text in json.loads(path.read_text("utf-8"))]
