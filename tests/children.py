"""What tests ask child processes to do: die, hang, eat memory. Faults that real engines cannot be asked to make."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import time

from trimaran.core.errors import ParityError


def die(number: int) -> None:
    os.kill(os.getpid(), number)


def hang() -> None:
    time.sleep(600)


def eat(size_bytes: int) -> int:
    return len(bytearray(size_bytes))


def refuse() -> None:
    raise ParityError("embedding differs by 0.3.", hint="Look at it.", observed=0.3)


def fail() -> None:
    raise LookupError("no such thing")


def end_slowly() -> None:
    """Like PyTorch, whose libraries take a second to end."""
    sys.stdout.write("said before the end\n")
    atexit.register(time.sleep, 60)


def chatter() -> str:
    os.write(1, b'{"result": "spoiled"}\n')
    return "kept"


def advertise_too_much() -> str:
    """Like a oneDNN kernel on a CPU that advertises AMX and cannot execute it."""
    if os.environ.get("ONEDNN_MAX_CPU_ISA") != "AVX512_CORE_VNNI":
        os.kill(os.getpid(), signal.SIGILL)
    return "ran"


class Counter:
    def __init__(self, start: int) -> None:
        self._value = start

    def add(self, amount: int) -> int:
        self._value += amount
        return self._value


def telemetry_there() -> bool:
    from openvino.tools.ovc import telemetry_utils

    return bool(telemetry_utils.tm.__name__ == "openvino_telemetry")
