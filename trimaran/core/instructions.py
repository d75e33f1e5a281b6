"""Which CPU instructions really run here. Some machines advertise instructions that end a process with SIGILL.

Each row of the table runs a few bytes of machine code in its own child process.
"""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast

from trimaran.core.environment import cpu_flags

# What computes products of INT8 numbers. Without VNNI two of them are added up in 16 bits, which rounds and saturates.
ProductsBy = Literal["vnni", "without-vnni"]
# Precisions whose answers depend on it. Of `int8-weights` only the weights are INT8, and products are float.
INTEGER = ("int8-dynamic", "int8-static")
# For tests: takes the place of what this CPU has.
PRODUCTS_VARIABLE = "TRIMARAN_TEST_PRODUCTS_BY"
_VNNI = {"avx512_vnni", "avx_vnni", "amx_int8"}
# oneDNN's limit of instructions, and its values that leave VNNI out.
_LIMIT = "ONEDNN_MAX_CPU_ISA"
_BELOW_VNNI = {"SSE41", "AVX", "AVX2", "AVX512_CORE"}


def products_by(environment: Mapping[str, str]) -> ProductsBy:
    """What computes INT8 products here, for an engine with these environment variables on top of this process's."""
    if PRODUCTS_VARIABLE in os.environ:
        return cast(ProductsBy, os.environ[PRODUCTS_VARIABLE])
    limited = {**os.environ, **environment}.get(_LIMIT, "").upper() in _BELOW_VNNI
    return "vnni" if not limited and cpu_flags() & _VNNI else "without-vnni"


def instruction_limit() -> dict[str, str]:
    """oneDNN's limit if this process was started with one. What is remembered under it counts under no other."""
    return {_LIMIT: os.environ[_LIMIT]} if os.environ.get(_LIMIT) else {}


_RUNNER = """
import ctypes, mmap, sys
code = bytes.fromhex(sys.argv[1])
if sys.argv[2] == "tiles":
    ctypes.CDLL(None).syscall(158, 0x1023, 18)  # arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA)
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(code + bytes([0xC3]))
config = (ctypes.c_uint8 * 64)()
config[0] = 1
for tile in range(3):
    config[16 + 2 * tile] = 64
    config[48 + tile] = 16
address = ctypes.addressof(ctypes.c_char.from_buffer(page))
ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)(ctypes.addressof(config))
"""


@dataclass(frozen=True)
class Instruction:
    name: str
    # The name in /proc/cpuinfo.
    flag: str
    # Machine code in hexadecimal.
    code: str
    what: str
    # `tiles` asks the kernel for AMX tile data first.
    needs: str = "nothing"


INSTRUCTIONS = (
    Instruction("avx2", "avx2", "c5fdfec0 c5f877", "vpaddd ymm"),
    Instruction("avx512f", "avx512f", "62f17d48fec0 c5f877", "vpaddd zmm"),
    Instruction("avx512_vnni", "avx512_vnni", "62f27d4850c0 c5f877", "vpdpbusd zmm: INT8 products"),
    Instruction("avx512_bf16", "avx512_bf16", "62f27e4852c0 c5f877", "vdpbf16ps zmm: BF16 products"),
    Instruction("avx512_fp16", "avx512_fp16", "62f57c4858c0 c5f877", "vaddph zmm: FP16 arithmetic"),
    Instruction("avx_vnni", "avx_vnni", "c4e27d50c0 c5f877", "vpdpbusd ymm: INT8 products"),
    Instruction("amx_int8", "amx_int8", "c4e2784907 c4e26b5ec1 c4e27849c0", "tdpbssd: INT8 tiles", needs="tiles"),
    Instruction("amx_bf16", "amx_bf16", "c4e2784907 c4e26a5cc1 c4e27849c0", "tdpbf16ps: BF16 tiles", needs="tiles"),
)


@dataclass(frozen=True)
class Probed:
    """The outcome of one instruction."""

    name: str
    what: str
    advertised: bool
    executes: bool
    # How the child process ended.
    detail: str

    @property
    def trap(self) -> bool:
        """Advertised, but it does not run: libraries that believe the flag crash."""
        return self.advertised and not self.executes


def probe() -> tuple[Probed, ...]:
    """Runs every instruction of the table; empty on a machine that is not x86-64 Linux."""
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "AMD64"):
        return ()
    flags = cpu_flags()
    return tuple(_probe(row, row.flag in flags) for row in INSTRUCTIONS)


def _probe(row: Instruction, advertised: bool) -> Probed:
    command = [sys.executable, "-S", "-c", _RUNNER, row.code.replace(" ", ""), row.needs]
    try:
        code = subprocess.run(command, capture_output=True, timeout=20, check=False).returncode
    except subprocess.TimeoutExpired:
        return Probed(row.name, row.what, advertised, False, "did not end within 20 s")
    detail = "runs" if code == 0 else signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return Probed(row.name, row.what, advertised, code == 0, detail)
