"""Runs functions in a child process, so that a crash, a hang or exhausted memory never ends the parent.

The child is `python -m trimaran.core.isolation`. Requests and answers are JSON lines over two pipes of their own.
The child's stdout and stderr go to a log file, so that a library that prints cannot spoil the protocol.

    with Worker(environment={"OMP_NUM_THREADS": "1"}) as worker:
        folder = worker.call(children.fuse, 60.0, parent="...")        # a function, with a deadline in seconds
        probe = worker.hold(Probe, 60.0, directory="...")              # an object that lives in the child
        answers = probe.call(Probe.answers, 60.0, texts_path="...")    # a method of it
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import importlib
import json
import operator
import os
import resource
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from trimaran.core.errors import ChildError, ToolError, TrimaranError, error_from_json
from trimaran.core.scratch import scratch_log

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Object = TypeVar("Object")
OnProgress = Callable[[int, int, str], None]
_progress_to: int | None = None

# oneDNN picks kernels by what the CPU advertises. Where an advertised instruction does not execute (AMX under
# some hypervisors), a narrower set makes the same model run: tried in this order, only after a SIGILL.
RESTRICTIONS: tuple[dict[str, str], ...] = (
    {},
    {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_FP16"},
    {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI"},
    {"ONEDNN_MAX_CPU_ISA": "AVX2"},
)


def first_restriction_that_runs(attempt: Callable[[dict[str, str]], Result]) -> tuple[Result, dict[str, str]]:
    """Calls `attempt` under ever narrower instruction sets until it does not die of SIGILL."""
    for restriction in RESTRICTIONS:
        try:
            return attempt(restriction), restriction
        except ChildError as error:
            if error.reason != "SIGILL" or restriction is RESTRICTIONS[-1]:
                raise
    raise AssertionError("the ladder has a last rung")


class Worker:
    """One child process that answers calls until closed; dies with its parent."""

    def __init__(
        self,
        *,
        environment: Mapping[str, str] | None = None,
        log: Path | None = None,
        memory_limit_bytes: int | None = None,
        python: Path | None = None,
        on_progress: OnProgress | None = None,
    ) -> None:
        """`python` is an interpreter of another environment; this package must be on its path."""
        self._on_progress = on_progress
        self._own_log = log is None
        if log is None:
            log = scratch_log()
        log.parent.mkdir(parents=True, exist_ok=True)
        self.log = log
        self.peak_memory_bytes = 0
        request_read, self._requests = os.pipe()
        self._answers, answer_write = os.pipe()
        limit = str(memory_limit_bytes or 0)
        interpreter = str(python or sys.executable)
        command = [interpreter, "-m", "trimaran.core.isolation", str(request_read), str(answer_write), limit]
        with log.open("ab") as stream:
            if self._own_log:
                # The child inherits the lock, and the log stays as long as it lives.
                fcntl.flock(stream, fcntl.LOCK_EX)
            self._process = subprocess.Popen(
                command,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                pass_fds=(request_read, answer_write),
                start_new_session=True,
            )
        os.close(request_read)
        os.close(answer_write)
        self._buffer = b""

    def call(
        self,
        function: Callable[Parameters, Result],
        deadline_s: float,
        /,
        *arguments: Parameters.args,
        **keywords: Parameters.kwargs,
    ) -> Result:
        """Runs a function of a module's top level. Arguments and result are JSON: a tuple comes back as a list.

        Raises the child's own TrimaranError, or ChildError with the reason why the child did not answer.
        """
        answer = self.ask(deadline_s, target=target_of(function), arguments=arguments, keywords=keywords)
        return answer  # type: ignore[no-any-return]

    def hold(
        self,
        kind: Callable[Parameters, Object],
        deadline_s: float,
        /,
        *arguments: Parameters.args,
        **keywords: Parameters.kwargs,
    ) -> Held[Object]:
        """Makes an object of a class in the child, where it stays until the worker is closed."""
        number = self.ask(deadline_s, target=target_of(kind), arguments=arguments, keywords=keywords, hold=True)
        return Held(self, int(number))

    def ask(self, deadline_s: float, *, target: str, **request: Any) -> Any:
        """Sends one request, as `_answer` reads it, and waits for its result. `call` and `hold` are the typed ways."""
        try:
            _write_all(self._requests, (json.dumps({"target": target, **request}) + "\n").encode())
        except BrokenPipeError:
            raise self._death(target) from None
        end_s = time.monotonic() + deadline_s
        while "progress" in (answer := json.loads(self._read_line(target, deadline_s, end_s))):
            if self._on_progress:
                self._on_progress(*answer["progress"])
        self.peak_memory_bytes = max(self.peak_memory_bytes, int(answer["peak_memory_bytes"]))
        if error := answer.get("error"):
            raise error_from_json(error)
        if failure := answer.get("failure"):
            if failure["kind"] == "MemoryError":
                raise ChildError(f"{target} ran out of memory.", reason="out of memory", log=str(self.log))
            self._own_log = False
            raise ToolError(
                f"{target} failed: {failure['kind']}: {failure['message']}.",
                hint=f"The log is {self.log}.",
                log=str(self.log),
            )
        return answer["result"]

    def _read_line(self, target: str, deadline_s: float, end: float) -> bytes:
        while b"\n" not in self._buffer:
            remaining = end - time.monotonic()
            ready, _, _ = select.select([self._answers], [], [], max(0.0, remaining))
            if not ready:
                self._kill()
                raise ChildError(
                    f"{target} gave no answer within {deadline_s:g} s.",
                    reason=f"deadline of {deadline_s:g} s",
                )
            chunk = os.read(self._answers, 1 << 16)
            if not chunk:
                raise self._death(target)
            self._buffer += chunk
        line, self._buffer = self._buffer.split(b"\n", 1)
        return line

    def _death(self, target: str) -> ChildError:
        code = self._process.wait()
        reason = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        extra = " (the kernel's out-of-memory killer, most likely)" if reason == "SIGKILL" else ""
        self._own_log = False
        return ChildError(
            f"The child process running {target} died of {reason}{extra}.",
            reason=reason,
            hint=f"Its last words: {tail(self.log)}" if tail(self.log) else "",
            log=str(self.log),
        )

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        for descriptor in (self._requests, self._answers):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        try:
            self._process.wait(timeout=2.0)
        except subprocess.TimeoutExpired:
            self._kill()
        if self._own_log:
            self.log.unlink(missing_ok=True)

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Held(Generic[Object]):
    """An object that lives in a worker's child, seen from the parent."""

    def __init__(self, worker: Worker, number: int) -> None:
        self._worker, self._number = worker, number

    def call(
        self,
        method: Callable[Concatenate[Object, Parameters], Result],
        deadline_s: float,
        /,
        *arguments: Parameters.args,
        **keywords: Parameters.kwargs,
    ) -> Result:
        """Calls `method`, a function of the object's class, on the object. See `Worker.call`."""
        answer = self._worker.ask(
            deadline_s, target=target_of(method), arguments=arguments, keywords=keywords, owner=self._number
        )
        return answer  # type: ignore[no-any-return]

    def release(self) -> None:
        """Drops the object and its memory in the child, which goes on answering."""
        self._worker.ask(60.0, target="release", arguments=(), keywords={}, owner=self._number, release=True)


def run(
    function: Callable[Parameters, Result],
    deadline_s: float,
    /,
    *arguments: Parameters.args,
    **keywords: Parameters.kwargs,
) -> Result:
    """One call in a child of its own, with the environment of this process."""
    with Worker() as worker:
        return worker.call(function, deadline_s, *arguments, **keywords)


def target_of(function: Callable[..., Any]) -> str:
    """`module:name`, by which a child imports the function.

    A script that runs as `__main__` is imported by its file's name: its folder must be on the child's path.
    """
    module, name = function.__module__, function.__qualname__
    if "<" in name:
        raise TypeError(f"A child can import only what a module defines at its top level, found {module}:{name}.")
    if module == "__main__":
        script = sys.modules[module]
        module = script.__spec__.name if script.__spec__ else Path(str(script.__file__)).stem
    return f"{module}:{name}"


def report_progress(done: int, total: int, what: str = "") -> None:
    """From inside a child: tells the parent where the call is. Outside of one it does nothing."""
    if _progress_to is not None:
        _write_all(_progress_to, (json.dumps({"progress": [done, total, what]}) + "\n").encode())


def tail(path: Path, *, lines: int = 3) -> str:
    if not path.is_file():
        return ""
    text = path.read_bytes()[-4096:].decode("utf-8", "replace")
    return " | ".join([line.strip() for line in text.splitlines() if line.strip()][-lines:])


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _serve(requests: int, answers: int, memory_limit_bytes: int) -> None:
    die_with_parent()
    # This file runs as __main__; what the child imports is another copy of it.
    importlib.import_module("trimaran.core.isolation")._progress_to = answers  # type: ignore[attr-defined]
    if memory_limit_bytes:
        resource.setrlimit(resource.RLIMIT_AS, (memory_limit_bytes, memory_limit_bytes))
    held: list[Any] = []
    with os.fdopen(requests, "rb") as stream:
        for line in stream:
            answer: dict[str, Any] = {}
            try:
                answer["result"] = _answer(held, **json.loads(line))
            except TrimaranError as error:
                answer["error"] = error.as_json()
            except Exception as error:  # any other failure belongs to the parent, which names it
                traceback.print_exc()
                sys.stderr.flush()
                answer["failure"] = {"kind": type(error).__name__, "message": str(error)[:2000]}
            answer["peak_memory_bytes"] = peak_memory_bytes()
            _write_all(answers, (json.dumps(answer) + "\n").encode())


def _answer(
    held: list[Any],
    *,
    target: str,
    arguments: list[Any],
    keywords: dict[str, Any],
    owner: int | None = None,
    hold: bool = False,
    release: bool = False,
) -> Any:
    """Calls `target`, as a method of the held object number `owner` if there is one. `held` are this process's objects.

    With `hold`, the result stays here and its number is the answer. With `release`, the held object is dropped.
    """
    if release and owner is not None:
        held[owner] = None
        return None
    module, _, name = target.partition(":")
    function = operator.attrgetter(name)(importlib.import_module(module))
    result = function(*([] if owner is None else [held[owner]]), *arguments, **keywords)
    if not hold:
        return result
    held.append(result)
    return len(held) - 1


def peak_memory_bytes() -> int:
    """Largest resident set of this process so far.

    Not `ru_maxrss` where /proc is there: Linux carries the parent's peak over fork and exec into it.
    """
    status = Path("/proc/self/status")
    lines = status.read_text(encoding="utf-8").splitlines() if status.is_file() else []
    peaks = [int(line.split()[1]) for line in lines if line.startswith("VmHWM:")]
    return (peaks[0] if peaks else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * 1024


def die_with_parent() -> None:
    """This process gets SIGKILL when the one that started it ends, however that ends."""
    prctl_set_parent_death_signal = 1
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(prctl_set_parent_death_signal, signal.SIGKILL)


if __name__ == "__main__":
    _serve(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
    # What was asked is answered and written. Ending the interpreter would take PyTorch's libraries another second.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
