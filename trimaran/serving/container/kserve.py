"""KServe objects for one served model: an InferenceService, and the runtime with what the text stages import."""

from __future__ import annotations

from trimaran.serving.container.image import MODELS_FOLDER, PORTS, PackedModel, triton_arguments
from trimaran.serving.container.kubernetes import Object, label_of, resources_of
from trimaran.serving.container.kubernetes_options import KubernetesOptions

# Where KServe puts what `storageUri` names.
_MOUNTED = "/mnt/models"


def kserve_objects(model: PackedModel, options: KubernetesOptions) -> list[Object]:
    """Callers speak the v2 protocol (HTTP and gRPC) to Triton itself: text in, answers out, without keys and limits."""
    name = label_of(model.name)
    labels = {"app.kubernetes.io/name": name, "app.kubernetes.io/part-of": "trimaran"}
    runtime = {"name": f"{name}-runtime"[:63], "namespace": options.namespace, "labels": labels}
    service = {"name": name, "namespace": options.namespace, "labels": labels}
    command, *arguments = triton_arguments(list(model.loaded), address="0.0.0.0")  # noqa: S104  (of its own pod)
    container: Object = {
        "name": "kserve-container",
        "image": options.image,
        "command": [command],
        "args": [argument.replace(MODELS_FOLDER, _MOUNTED) for argument in arguments],
        "env": [{"name": key, "value": value} for key, value in sorted(model.variables.items())],
        "ports": [{"name": "http1", "containerPort": PORTS["http"], "protocol": "TCP"}],
        "resources": resources_of(model),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
            "runAsUser": 1000,
        },
        "volumeMounts": [{"name": "shared-memory", "mountPath": "/dev/shm"}],  # noqa: S108  (inside the container)
    }
    return [
        {
            "apiVersion": "serving.kserve.io/v1alpha1",
            "kind": "ServingRuntime",
            "metadata": runtime,
            "spec": {
                "supportedModelFormats": [{"name": "triton", "version": "2", "autoSelect": False}],
                "protocolVersions": ["v2", "grpc-v2"],
                "multiModel": False,
                "containers": [container],
                "volumes": [{"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}],
            },
        },
        {
            "apiVersion": "serving.kserve.io/v1beta1",
            "kind": "InferenceService",
            "metadata": service,
            "spec": {
                "predictor": {
                    "minReplicas": options.replicas,
                    "maxReplicas": max(options.replicas, options.most_replicas),
                    "automountServiceAccountToken": False,
                    "model": {
                        "modelFormat": {"name": "triton", "version": "2"},
                        "protocolVersion": "v2",
                        "runtime": runtime["name"],
                        "storageUri": f"pvc://{options.claim}/",
                    },
                }
            },
        },
    ]
