"""The Triton of the package `nvidia-pytriton`, or of NVIDIA's image: where its parts are, and whether they can run."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import trimaran.runtime
from trimaran.core.errors import UnavailableError, install_hint
from trimaran.core.store import default_home

HINT = install_hint("triton")
# Backends of the official container that python stands in for here, with the files of their engines.
PYTHON_BASED = {
    "onnxruntime": ("onnxruntime_engine.py",),
    "openvino": ("openvino_engine.py",),
    "tensorrt": ("tensorrt_engine.py", "cuda_driver.py"),
}
# Variables that Triton and its stubs inherit. Keys and tokens of this process are none of their business.
_PASSED = {"HOME", "USER", "LANG", "TZ", "TMPDIR", "XDG_CACHE_HOME", "LD_PRELOAD", "DO_NOT_TRACK"}
_PASSED_PREFIXES = (
    "LC_", "TRIMARAN_", "ONEDNN_", "DNNL_", "OMP_", "KMP_", "MKL_", "OPENBLAS_", "OV_", "OPENVINO_", "ORT_", "RAYON_",
    "TOKENIZERS_", "MALLOC_", "CUDA_", "NVIDIA_", "OTEL_",
)  # fmt: skip
_RUNTIME = Path(trimaran.runtime.__file__).parent
# Names a folder that `place_backends` filled when an image was built.
PREPARED_BACKENDS = "TRIMARAN_BACKENDS"
# Names the folder of another Triton, such as /opt/tritonserver in NVIDIA's image, with backends of its own.
OTHER_TRITON = "TRIMARAN_TRITON"


@dataclass(frozen=True)
class Installation:
    binary: Path
    python_backend: Path
    stub: Path
    caches: Path
    libraries: tuple[Path, ...]

    def environment(self) -> dict[str, str]:
        """The stub finds its packages only by the `python3` on PATH, and libpython only by LD_LIBRARY_PATH."""
        inherited = [os.environ["LD_LIBRARY_PATH"]] if os.environ.get("LD_LIBRARY_PATH") else []
        return {
            **{
                name: value
                for name, value in os.environ.items()
                if name in _PASSED or name.startswith(_PASSED_PREFIXES)
            },
            "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}",
            "LD_LIBRARY_PATH": ":".join([*map(str, self.libraries), *inherited]),
        }

    def backends(self, folder: Path) -> Path:
        """The backend folder for Triton: the image's own, or a new one inside `folder`.

        Where nothing that can be written may be executed, as in a locked-down container, only the image has programs.
        """
        if prepared := os.environ.get(PREPARED_BACKENDS):
            return Path(prepared)
        if OTHER_TRITON in os.environ:
            return self.python_backend.parent
        self.place_backends(folder / "backends")
        return folder / "backends"

    def place_backends(self, folder: Path) -> None:
        """Fills a backend folder for Triton. Files are copied: with links this was not tried."""
        python = folder / "python"
        python.mkdir(parents=True)
        for source in (*self.python_backend.glob("*.so"), *self.python_backend.glob("*.py"), self.stub):
            shutil.copy(source, python)
        for name, files in PYTHON_BASED.items():
            (folder / name).mkdir()
            shutil.copyfile(_RUNTIME / "triton_tensor_model.py", folder / name / "model.py")
            for file in files:
                shutil.copyfile(_RUNTIME / file, folder / name / file)


def executable_folder() -> Path:
    """A folder for temporary files that Triton may map libraries from: /tmp may be mounted noexec."""
    folders = [Path(tempfile.gettempdir()), default_home()]
    for folder in folders if not {PREPARED_BACKENDS, OTHER_TRITON} & os.environ.keys() else ():
        folder.mkdir(parents=True, exist_ok=True)
        if not os.statvfs(folder).f_flag & os.ST_NOEXEC:
            return folder
    return folders[0]


def why_not() -> str | None:
    """None, or the reason why no Triton can be started here."""
    try:
        find()
    except UnavailableError as error:
        return error.message
    return None


def find() -> Installation:
    """Raises UnavailableError with the reason when this environment cannot run it."""
    if other := os.environ.get(OTHER_TRITON):
        return _checked(_other(Path(other)), f"{other} ({OTHER_TRITON})", "Name the folder of a Triton, or unset it.")
    spec = importlib.util.find_spec("pytriton")
    if spec is None or spec.origin is None:
        raise UnavailableError("Serving wants nvidia-pytriton, which contains Triton; it is not installed.", hint=HINT)
    root = Path(spec.origin).parent
    tritonserver = root / "tritonserver"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    installation = Installation(
        binary=tritonserver / "bin" / "tritonserver",
        python_backend=tritonserver / "backends" / "python",
        stub=tritonserver / "python_backend_stubs" / version / "triton_python_backend_stub",
        caches=tritonserver / "caches",
        libraries=(root.parent / "nvidia_pytriton.libs", Path(sysconfig.get_config_var("LIBDIR"))),
    )
    return _checked(installation, f"nvidia-pytriton for Python {version}", "Use Python 3.11 or 3.12.")


def has_backend(name: str) -> bool:
    """Whether the Triton here has the real backend of this name, not one that Python stands in for."""
    try:
        folder = find().python_backend.parent / name
    except UnavailableError:
        return False
    return (folder / f"libtriton_{name}.so").is_file()


def _other(root: Path) -> Installation:
    python = root / "backends" / "python"
    return Installation(
        binary=root / "bin" / "tritonserver",
        python_backend=python,
        stub=python / "triton_python_backend_stub",
        caches=root / "caches",
        libraries=(root / "lib", Path(sysconfig.get_config_var("LIBDIR"))),
    )


def _checked(installation: Installation, where: str, hint: str) -> Installation:
    _require_old_numpy()
    for path in (installation.binary, installation.stub):
        if not path.is_file():
            raise UnavailableError(f"{where} has no {path.name} ({path}).", hint=hint)
    _require_libraries(installation)
    return installation


def _require_old_numpy() -> None:
    version = metadata.version("numpy")
    if int(version.split(".", 1)[0]) >= 2:
        raise UnavailableError(
            f"Triton's python backend wants numpy below 2, found {version}: it would answer zeros without an error.",
            hint=HINT,
        )


def _require_libraries(installation: Installation) -> None:
    """Checked beforehand: a stub that does not find libpython makes the load hang."""
    if shutil.which("ldd") is None:
        return
    listing = subprocess.run(
        ["ldd", str(installation.stub)],  # noqa: S607
        env=installation.environment(),
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    missing = [line.split()[0] for line in listing.stdout.splitlines() if "not found" in line]
    if missing:
        raise UnavailableError(
            f"Triton's python stub wants {', '.join(missing)}, and this system does not have it.",
            hint="Use a Python built with --enable-shared, or install the library.",
        )
