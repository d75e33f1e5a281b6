"""A TensorRT plan that Triton's own `tensorrt` backend runs, for machines where Python has no TensorRT.

NVIDIA's image is such a machine. A Triton on the loopback holds this plan alone. So what is judged and timed is what
that backend serves. `trimaran finish` opens plans in this way; no served stage does.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt

Array = npt.NDArray[Any]
# Names the folder of Triton, if it is not where NVIDIA's image has it.
TRITON_VARIABLE, _NVIDIAS_TRITON = "TRIMARAN_TRITON", "/opt/tritonserver"
_MODEL, _HOST, _START_S = "plan", "127.0.0.1", 300.0
_TYPES = {
    "int64": "TYPE_INT64",
    "int32": "TYPE_INT32",
    "float32": "TYPE_FP32",
    "float16": "TYPE_FP16",
}
_DEATH_SIGNAL, _KILL = 1, 9


def triton_with_tensorrt() -> Path | None:
    """The folder of a Triton that has a `tensorrt` backend; None without one."""
    folder = Path(os.environ.get(TRITON_VARIABLE) or _NVIDIAS_TRITON)
    return (
        folder if (folder / "bin" / "tritonserver").is_file() and (folder / "backends" / "tensorrt").is_dir() else None
    )


class Engine:
    """Synchronous and on host arrays, at the very shape of each call. The manifest of the plan lies beside it."""

    def __init__(self, path: str, *, threads: int, options: Mapping[str, Any] | None = None) -> None:
        import tritonclient.grpc

        triton = triton_with_tensorrt()
        if triton is None:
            raise RuntimeError("Python has no TensorRT here, and there is no Triton with a tensorrt backend.")
        self._client_library: Any = tritonclient.grpc
        manifest = json.loads((Path(path).parent / "manifest.json").read_text(encoding="utf-8"))
        self._types = {
            spec["name"]: _TYPES[spec["dtype"]].removeprefix("TYPE_") for spec in manifest["signature"]["inputs"]
        }
        self._outputs = [spec["name"] for spec in manifest["signature"]["outputs"]]
        self._stack = contextlib.ExitStack()
        try:
            folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="trimaran-plan-")))
            version = folder / _MODEL / "1"
            version.mkdir(parents=True)
            (version / "model.plan").symlink_to(Path(path).absolute())
            (folder / _MODEL / "config.pbtxt").write_text(configuration(manifest), encoding="utf-8")
            self._start(triton, folder, int((options or {}).get("device", 0)))
        except BaseException:
            self.close()
            raise

    def infer(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        library = self._client_library
        tensors = []
        for name, array in inputs.items():
            tensors.append(library.InferInput(name, list(array.shape), self._types[name]))
            tensors[-1].set_data_from_numpy(array)
        result = self._client.infer(_MODEL, tensors)
        return {name: result.as_numpy(name) for name in self._outputs}

    def close(self) -> None:
        self._stack.close()

    def _start(self, triton: Path, folder: Path, device: int) -> None:
        ports = _free_ports(2)
        command = [
            str(triton / "bin" / "tritonserver"),
            f"--model-repository={folder}",
            f"--backend-directory={triton / 'backends'}",
            f"--http-address={_HOST}",
            f"--http-port={ports[0]}",
            f"--grpc-address={_HOST}",
            f"--grpc-port={ports[1]}",
            "--allow-metrics=false",
        ]
        libraries = [str(triton / "lib"), str(sysconfig.get_config_var("LIBDIR")), os.environ.get("LD_LIBRARY_PATH")]
        environment = {
            **os.environ,
            "LD_LIBRARY_PATH": ":".join(filter(None, libraries)),
            "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}",
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "CUDA_VISIBLE_DEVICES": visible_device(device),
        }
        # Its words go to the log of this process.
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            preexec_fn=_die_with_parent,  # noqa: PLW1509  (this process starts no threads before)
        )
        self._stack.callback(self._stop)
        self._client = self._client_library.InferenceServerClient(f"{_HOST}:{ports[1]}")
        self._stack.callback(self._client.close)
        end_s = time.monotonic() + _START_S
        while not self._ready():
            if self._process.poll() is not None or time.monotonic() > end_s:
                raise RuntimeError("Triton did not load the plan; its log says why.")
            time.sleep(0.1)

    def _ready(self) -> bool:
        try:
            return bool(self._client.is_model_ready(_MODEL))
        except self._client_library.InferenceServerException:
            return False

    def _stop(self) -> None:
        self._process.kill()
        self._process.wait()


def configuration(manifest: Mapping[str, Any]) -> str:
    """The plan as a Triton model: the tensors of its signature, batched up to its profile's limit."""

    def tensors(side: str) -> str:
        return "\n".join(
            f'{side} {{ name: "{spec["name"]}" data_type: {_TYPES[spec["dtype"]]} dims: [{_dims(spec)}] }}'
            for spec in manifest["signature"][f"{side}s"]
        )

    batch = manifest["profile"]["batch"]["maximum"]
    head = f'name: "{_MODEL}"\nbackend: "tensorrt"\nmax_batch_size: {batch}\ndefault_model_filename: "model.plan"'
    return f"{head}\n{tensors('input')}\n{tensors('output')}\n"


def _dims(spec: Mapping[str, Any]) -> str:
    return ", ".join(str(dim if isinstance(dim, int) else -1) for dim in spec["dims"][1:])


def visible_device(number: int) -> str:
    """The GPU of this number, for a process that is to see it alone."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return visible.split(",")[number] if visible else str(number)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listening in sockets:
            listening.bind((_HOST, 0))
        return [listening.getsockname()[1] for listening in sockets]


def _die_with_parent() -> None:
    """A child that is killed leaves no server behind."""
    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, _KILL)
