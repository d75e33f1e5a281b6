"""Kubernetes objects for one served model: Triton and its gateway in one pod, with only the gateway reachable.

Triton runs under `trimaran serve`: its watchdog replaces dead stubs, and damaged files are refused. On a GPU it is the
Triton of NVIDIA's image, and prepared models are finished first.
"""

from __future__ import annotations

from typing import Any

from trimaran.core.errors import UsageError
from trimaran.serving.container.image import (
    EVERYWHERE,
    FINISHED_FOLDER,
    MODELS_FOLDER,
    NVIDIA_ENTRYPOINT,
    PLANS_FOLDER,
    PORTS,
    PackedModel,
)
from trimaran.serving.container.kubernetes_options import KubernetesOptions
from trimaran.serving.triton.flags import EXIT_TIMEOUT_S

GATEWAY_PORT = 8080
# Requests that wait in the Triton of each pod. Above the target, pods are added.
QUEUE_METRIC = "nv_inference_pending_request_count"
# In the pod template, so that another version in the same claim rolls the pods.
RELEASE_ANNOTATION = "trimaran.io/release"
_KEYS_FOLDER = "/etc/trimaran"
_DRAIN_S = 30
Object = dict[str, Any]
# A server without a GPU starts in this time. On a GPU TensorRT builds first, which takes minutes, and needs memory.
_START_S, BUILD_S = 300, 1800
BUILD_BYTES = 6 << 30


def objects(model: PackedModel, release: str, options: KubernetesOptions) -> list[Object]:
    """`release` names the version by the digest of its files."""
    require_first_gpu(model)
    name = label_of(model.name)
    labels = {"app.kubernetes.io/name": name, "app.kubernetes.io/part-of": "trimaran"}
    chosen = {"app.kubernetes.io/name": name}
    meta = {"name": name, "namespace": options.namespace, "labels": labels}
    return [
        object_of("v1", "ServiceAccount", meta, automountServiceAccountToken=False),
        object_of("apps/v1", "Deployment", meta, spec=_deployment(model, release, options, name, labels)),
        object_of(
            "v1",
            "Service",
            meta,
            spec={"selector": chosen, "ports": [{"name": "http", "port": 80, "targetPort": "gateway"}]},
        ),
        object_of("autoscaling/v2", "HorizontalPodAutoscaler", meta, spec=_autoscaling(options, name)),
        object_of(
            "policy/v1", "PodDisruptionBudget", meta, spec={"maxUnavailable": 1, "selector": {"matchLabels": chosen}}
        ),
        object_of("networking.k8s.io/v1", "NetworkPolicy", meta, spec=_network(options, chosen)),
    ]


def require_first_gpu(model: PackedModel) -> None:
    if model.device:
        raise UsageError(
            f"{model.name} opens GPU {model.device}, and the only GPU of a pod is number 0.",
            hint="Deploy or finish it with --device cuda:0.",
        )


def object_of(version: str, kind: str, meta: Object, **fields: Any) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": dict(meta), **fields}


def _deployment(model: PackedModel, release: str, options: KubernetesOptions, name: str, labels: Object) -> Object:
    chosen = {"app.kubernetes.io/name": name}
    scrape = {"prometheus.io/scrape": "true", "prometheus.io/port": str(PORTS["metrics"])}
    return {
        "replicas": options.replicas,
        "selector": {"matchLabels": chosen},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
        "template": {
            "metadata": {"labels": labels, "annotations": {RELEASE_ANNOTATION: release, **scrape}},
            "spec": {
                "serviceAccountName": name,
                "automountServiceAccountToken": False,
                "terminationGracePeriodSeconds": _DRAIN_S + EXIT_TIMEOUT_S + 10,
                **placement(chosen),
                **({"initContainers": [finish(model, options, scratch="finish")]} if model.prepared else {}),
                "containers": [_triton(model, options), _gateway(options)],
                "volumes": [
                    *plans_volumes(model, options),
                    {"name": "models", "persistentVolumeClaim": {"claimName": options.claim, "readOnly": True}},
                    {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
                    {"name": "scratch", "emptyDir": {}},
                    {"name": "keys", "secret": {"secretName": f"{name}-keys", "optional": False}},
                ],
            },
        },
    }


def finish(
    model: PackedModel, options: KubernetesOptions, *, folder: str = MODELS_FOLDER, mount: str = "", scratch: str = ""
) -> Object:
    """Builds and proves the plans of a prepared model on the node's GPU, before Triton starts.

    The repository is mounted read-only, so the finished copy lies on the volume of the plans. A second start on such a
    node finds it there and does nothing. `folder` is the repository; `mount` is where its volume lies, if elsewhere.
    """
    return {
        "name": "finish",
        **image_of(options.gpu_image),
        "command": [NVIDIA_ENTRYPOINT, "trimaran"],
        "args": ["finish", folder, model.name, f"--into={FINISHED_FOLDER}"],
        # The artifacts of the store last as well, so that a build that was cut off is not repeated.
        "env": [{"name": "TRIMARAN_HOME", "value": f"{PLANS_FOLDER}/home"}],
        "resources": resources_of(model),
        "securityContext": locked_down(),
        "volumeMounts": [
            {"name": "models", "mountPath": mount or folder, "readOnly": True},
            {"name": "plans", "mountPath": PLANS_FOLDER},
            {"name": "scratch", "mountPath": "/tmp", **({"subPath": scratch} if scratch else {})},  # noqa: S108
        ],
    }


def _triton(model: PackedModel, options: KubernetesOptions) -> Object:
    """Triton listens on the loopback, except for its metrics."""
    return {
        "name": "triton",
        **serving(model, options, MODELS_FOLDER, f"--metrics-host={EVERYWHERE}"),
        **_probes(model),
        "env": [{"name": key, "value": value} for key, value in sorted(model.variables.items())],
        "ports": [{"name": "metrics", "containerPort": PORTS["metrics"]}],
        "resources": resources_of(model),
        "securityContext": locked_down(),
        "volumeMounts": [
            {"name": "models", "mountPath": MODELS_FOLDER, "readOnly": True},
            *plans_mounts(model),
            {"name": "shared-memory", "mountPath": "/dev/shm"},  # noqa: S108  (inside the container)
            {"name": "scratch", "mountPath": "/tmp", "subPath": "triton"},  # noqa: S108
        ],
        # The gateway drains first, and needs Triton until it is done.
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", str(_DRAIN_S)]}}},
    }


def serving(model: PackedModel, options: KubernetesOptions, folder: str, address: str) -> Object:
    """Image and arguments of `trimaran serve`, which repairs what can be repaired. `address` is a flag."""
    served = FINISHED_FOLDER if model.prepared else folder
    arguments = ["serve", served, f"--model={model.name}", address, "--log=-"]
    if not on_gpu(model):
        return {**image_of(options.image), "args": arguments}
    # The image's own entry point finishes models first, which the init container has done.
    return {
        **image_of(options.gpu_image),
        "command": [NVIDIA_ENTRYPOINT, "trimaran"],
        "args": [*arguments, f"--start-timeout={start_s(model)}"],
    }


def _probes(model: PackedModel) -> Object:
    """Only a process that has stopped is dead.

    The metrics are the only port that probes reach. Triton opens it when its models are loaded, and answers it without
    inference, however busy it is.
    """
    probe = _probe("/metrics", PORTS["metrics"])
    return {
        "startupProbe": {**probe, "periodSeconds": 5, "failureThreshold": start_s(model) // 5},
        "livenessProbe": {**probe, "periodSeconds": 10, "failureThreshold": 6},
    }


def on_gpu(model: PackedModel) -> bool:
    return model.gpu or model.prepared


def start_s(model: PackedModel) -> int:
    return BUILD_S if on_gpu(model) else _START_S


def plans_volumes(model: PackedModel, options: KubernetesOptions) -> list[Object]:
    """All pods share the claim, so that they serve the same plans: two builds would be two releases."""
    return [{"name": "plans", "persistentVolumeClaim": {"claimName": options.plans}}] if on_gpu(model) else []


def plans_mounts(model: PackedModel) -> list[Object]:
    return [{"name": "plans", "mountPath": PLANS_FOLDER}] if on_gpu(model) else []


def image_of(image: str) -> Object:
    """An image without a tag would be pulled at every start."""
    return {"image": image, "imagePullPolicy": "IfNotPresent"}


def placement(chosen: Object) -> Object:
    """As whom the containers of a pod run, and that pods spread over machines."""
    return {
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 1000,
            "runAsGroup": 1000,
            "fsGroup": 1000,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": chosen},
            }
        ],
    }


def resources_of(model: PackedModel) -> Object:
    # A build holds the graph, its weights in other types and the kernels that it tries.
    needed = 3 * model.size_bytes + (512 << 20) + (BUILD_BYTES if on_gpu(model) else 0)
    memory = f"{max(1, -(-needed // (1 << 30)))}Gi"
    resources: Object = {
        "requests": {"cpu": str(model.threads), "memory": memory},
        # One CPU more for Triton's own threads and the tokenizer of the next batch.
        "limits": {"cpu": str(model.threads + 1), "memory": memory},
    }
    if on_gpu(model):
        resources["limits"]["nvidia.com/gpu"] = "1"
    return resources


def _gateway(options: KubernetesOptions) -> Object:
    return {
        "name": "gateway",
        **image_of(options.gateway_image),
        "args": [
            "gateway",
            f"--repository={MODELS_FOLDER}",
            f"--url=127.0.0.1:{PORTS['grpc']}",
            "--host=0.0.0.0",
            f"--port={GATEWAY_PORT}",
            f"--keys={_KEYS_FOLDER}/keys.json",
            # Metrics hold no text, and the network policy limits who reaches this port.
            "--open-metrics",
        ],
        "ports": [{"name": "gateway", "containerPort": GATEWAY_PORT}],
        "resources": {"requests": {"cpu": "250m", "memory": "256Mi"}, "limits": {"cpu": "2", "memory": "1Gi"}},
        "securityContext": locked_down(),
        "volumeMounts": [
            {"name": "models", "mountPath": MODELS_FOLDER, "readOnly": True},
            {"name": "keys", "mountPath": _KEYS_FOLDER, "readOnly": True},
            {"name": "scratch", "mountPath": "/tmp", "subPath": "gateway"},  # noqa: S108
        ],
        "readinessProbe": {**_probe("/readyz"), "periodSeconds": 5, "failureThreshold": 2},
        "livenessProbe": {**_probe("/healthz"), "periodSeconds": 10, "failureThreshold": 3},
        # Requests still arrive until every node knows that this pod is going.
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", "5"]}}},
    }


def _probe(path: str, port: int = GATEWAY_PORT) -> Object:
    return {"httpGet": {"path": path, "port": port}, "timeoutSeconds": 3}


def locked_down() -> Object:
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def _autoscaling(options: KubernetesOptions, name: str) -> Object:
    metric = {
        "metric": {"name": QUEUE_METRIC},
        "target": {"type": "AverageValue", "averageValue": str(options.pending)},
    }
    return {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "minReplicas": options.replicas,
        "maxReplicas": max(options.replicas, options.most_replicas),
        "metrics": [{"type": "Pods", "pods": metric}],
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 300}},
    }


def _network(options: KubernetesOptions, chosen: Object) -> Object:
    """Callers reach the gateway and Prometheus reads metrics; nothing goes out."""
    callers: Object = {"ports": [{"protocol": "TCP", "port": GATEWAY_PORT}]}
    if options.callers:
        callers["from"] = [from_namespace(options.callers)]
    metrics = {
        "ports": [{"protocol": "TCP", "port": port} for port in (PORTS["metrics"], GATEWAY_PORT)],
        "from": [from_namespace(options.monitoring)],
    }
    return {
        "podSelector": {"matchLabels": chosen},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [callers, metrics],
        "egress": [],
    }


def from_namespace(name: str) -> Object:
    return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}


def label_of(name: str) -> str:
    """A name that Kubernetes allows: lower-case letters, digits and '-', at most 50 characters."""
    plain = "".join(character if character.isalnum() and character.isascii() else "-" for character in name.lower())
    return f"trimaran-{plain.strip('-')}"[:50].strip("-")
