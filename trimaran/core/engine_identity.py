"""Which machine an engine belongs to; opening it on another one is refused."""

from __future__ import annotations

from pydantic import ConfigDict

from trimaran.core.artifact import Artifact
from trimaran.core.environment import driver_present, version_of
from trimaran.core.errors import IntegrityError
from trimaran.core.gpu_release import GPU_RELEASE, TENSORRT_WHEELS, trtexec_version
from trimaran.core.spec import Frozen
from trimaran.runtime.cuda_driver import CudaError, Driver, machine_facts
from trimaran.runtime.tensorrt_engine import differences, plan_folder

_DISTRIBUTIONS = {"tensorrt": TENSORRT_WHEELS, "tensorrt_rtx": ("tensorrt-rtx",)}


class EngineIdentity(Frozen):
    """What a machine must have to open an engine: the GPU model, its compute capability and the same TensorRT.

    CUDA and the driver are recorded. A newer driver opens the plan as well, so only its floor is checked.
    """

    # Manifests of before have `version_compatible`, which no plan could keep: no backend was told of it.
    model_config = ConfigDict(extra="ignore", frozen=True)

    runtime: str
    version: str
    # Those that the plan was built for.
    compute_capabilities: tuple[str, ...] = ()
    # Of the machine that built it. None if the plan does not depend on it: tensorrt_rtx compiles its kernels on the
    # machine that opens the plan.
    gpu: str | None = None
    cuda: str | None = None
    driver: str | None = None
    # The oldest driver that the builder's CUDA runs with.
    oldest_driver: str | None = None
    hardware_compatible: str = "NONE"

    @property
    def folder(self) -> str:
        """The name of this machine's folder of plans."""
        capability = self.compute_capabilities[0] if self.compute_capabilities else None
        return plan_folder({**self.model_dump(), "compute_capability": capability})


def installed_version(runtime: str) -> str | None:
    """Of its Python module; of TensorRT without one, that of the image's `trtexec`."""
    installed = next((version for name in _DISTRIBUTIONS[runtime] if (version := version_of(name))), None)
    return installed or (trtexec_version() if runtime == "tensorrt" else None)


def machine_identity(runtime: str, device: int = 0) -> EngineIdentity:
    """Return this machine as an engine built here would name it. Only the driver is asked, never TensorRT."""
    facts = machine_facts(installed_version(runtime) or "none", _driver(device))
    capability = facts["compute_capability"]
    return EngineIdentity(
        runtime=runtime,
        version=str(facts["version"]),
        compute_capabilities=(capability,) if capability else (),
        gpu=facts["gpu"],
        cuda=facts["cuda"],
        driver=facts["driver"],
        oldest_driver=GPU_RELEASE.driver if runtime == "tensorrt" else None,
    )


def refuse_foreign(artifact: Artifact, here: EngineIdentity | None = None) -> None:
    """Raise IntegrityError if the engine's manifest names another TensorRT or GPU than this machine has."""
    recorded = artifact.engine_options.get("identity")
    if recorded is None:
        raise IntegrityError(
            f"{artifact.directory.name} does not say for which machine it was built.",
            hint="Build it again: trimaran build-engine.",
        )
    built = EngineIdentity.model_validate(recorded)
    here = here or machine_identity(built.runtime, int(artifact.engine_options.get("device", 0)))
    capability = here.compute_capabilities[0] if here.compute_capabilities else None
    unlike = differences(built.model_dump(), {**here.model_dump(), "compute_capability": capability})
    if unlike:
        raise IntegrityError(
            f"{artifact.directory.name} is an engine of another machine: {'; '.join(unlike)}.",
            hint="Build it here: trimaran build-engine on its ONNX artifact.",
            wanted=built.model_dump(mode="json"),
            found=here.model_dump(mode="json"),
        )


def _driver(device: int) -> Driver | None:
    """Return None without a driver, and with a driver that finds no GPU."""
    if not driver_present():
        return None
    try:
        return Driver(device)
    except CudaError:
        return None
