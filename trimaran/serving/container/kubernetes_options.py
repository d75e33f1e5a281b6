"""What the owner of a cluster decides about a served model."""

from __future__ import annotations

from dataclasses import dataclass

from trimaran.core.choices import CPU_IMAGE, GATEWAY_IMAGE, GPU_IMAGE


@dataclass(frozen=True)
class KubernetesOptions:
    """What the owner of the cluster decides."""

    namespace: str = "default"
    # The volume claim that holds the repository.
    claim: str = "models"
    # Of a model on a GPU: the writable volume claim that keeps built engines.
    plans: str = "plans"
    # Triton under `trimaran serve`; for KServe, plain Triton.
    image: str = CPU_IMAGE
    # Of a model on a GPU: NVIDIA's Triton with TensorRT's Python module and trimaran, which finishes prepared models.
    gpu_image: str = GPU_IMAGE
    gateway_image: str = GATEWAY_IMAGE
    replicas: int = 2
    most_replicas: int = 8
    # How many requests may wait in one Triton before a pod is added.
    pending: int = 8
    # Of two tiers: gateways at least, and the texts in flight of all gateways for each Triton before one is added.
    gateways: int = 2
    texts_in_flight: int = 48
    # Of two tiers: the image that `trimaran package` made, by digest. Without one, the claim holds the repository.
    model_image: str = ""
    # Whether an init container pulls it, where the cluster cannot mount images as volumes.
    by_init: bool = False
    # The only namespace that may call; empty allows all.
    callers: str = ""
    # The namespace that reads metrics.
    monitoring: str = "monitoring"
