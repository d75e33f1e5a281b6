"""Kubernetes objects for one served model: Triton and its gateway in one pod, the gateway alone reachable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trimaran.serving.container.image import EXIT_TIMEOUT_S, IMAGE, MODELS_FOLDER, PORTS, ServedModel, triton_arguments

GATEWAY_IMAGE = "trimaran-gateway"
GATEWAY_PORT = 8080
# Requests that wait in Triton, of each pod; more than the target, and pods are added.
QUEUE_METRIC = "nv_inference_pending_request_count"
_KEYS_FOLDER = "/etc/trimaran"
_DRAIN_S = 30
Object = dict[str, Any]


@dataclass(frozen=True)
class Wishes:
    """What the cluster's owner decides. `claim` is the volume that holds the repository."""

    namespace: str = "default"
    claim: str = "models"
    image: str = IMAGE
    gateway_image: str = GATEWAY_IMAGE
    replicas: int = 2
    most_replicas: int = 8
    pending: int = 8
    callers: str = ""
    monitoring: str = "monitoring"


def objects(model: ServedModel, wishes: Wishes) -> list[Object]:
    name = _label(model.name)
    labels = {"app.kubernetes.io/name": name, "app.kubernetes.io/part-of": "trimaran"}
    chosen = {"app.kubernetes.io/name": name}
    meta = {"name": name, "namespace": wishes.namespace, "labels": labels}
    return [
        _object("v1", "ServiceAccount", meta, automountServiceAccountToken=False),
        _object("apps/v1", "Deployment", meta, spec=_deployment(model, wishes, name, labels, chosen)),
        _object(
            "v1",
            "Service",
            meta,
            spec={"selector": chosen, "ports": [{"name": "http", "port": 80, "targetPort": "gateway"}]},
        ),
        _object("autoscaling/v2", "HorizontalPodAutoscaler", meta, spec=_autoscaling(wishes, name)),
        _object(
            "policy/v1", "PodDisruptionBudget", meta, spec={"maxUnavailable": 1, "selector": {"matchLabels": chosen}}
        ),
        _object("networking.k8s.io/v1", "NetworkPolicy", meta, spec=_network(wishes, chosen)),
    ]


def _object(version: str, kind: str, meta: Object, **fields: Any) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": dict(meta), **fields}


def _deployment(model: ServedModel, wishes: Wishes, name: str, labels: Object, chosen: Object) -> Object:
    return {
        "replicas": wishes.replicas,
        "selector": {"matchLabels": chosen},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
        "template": {
            "metadata": {
                "labels": labels,
                "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": str(PORTS["metrics"])},
            },
            "spec": {
                "serviceAccountName": name,
                "automountServiceAccountToken": False,
                "terminationGracePeriodSeconds": _DRAIN_S + EXIT_TIMEOUT_S + 10,
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
                "containers": [_triton(model, wishes), _gateway(wishes)],
                "volumes": [
                    {"name": "models", "persistentVolumeClaim": {"claimName": wishes.claim, "readOnly": True}},
                    {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
                    {"name": "scratch", "emptyDir": {}},
                    {"name": "keys", "secret": {"secretName": f"{name}-keys"}},
                ],
            },
        },
    }


def _triton(model: ServedModel, wishes: Wishes) -> Object:
    """On the loopback but for its metrics. Its probe asks the gateway, whose readiness is a canary through the model:
    Triton's own stays true over a dead python stub."""
    command, *arguments = triton_arguments(list(model.loaded), address="127.0.0.1")
    memory = f"{max(1, -(-(3 * model.size_bytes + (512 << 20)) // (1 << 30)))}Gi"
    resources: Object = {
        "requests": {"cpu": str(model.threads), "memory": memory},
        "limits": {"memory": memory},
    }
    if model.gpu:
        resources["limits"]["nvidia.com/gpu"] = "1"
    return {
        "name": "triton",
        "image": wishes.image,
        "command": [command],
        "args": arguments,
        "env": [{"name": key, "value": value} for key, value in sorted(model.variables.items())],
        "ports": [{"name": "metrics", "containerPort": PORTS["metrics"]}],
        "resources": resources,
        "securityContext": _locked_down(),
        "volumeMounts": [
            {"name": "models", "mountPath": MODELS_FOLDER, "readOnly": True},
            {"name": "shared-memory", "mountPath": "/dev/shm"},  # noqa: S108  (inside the container)
            {"name": "scratch", "mountPath": "/tmp", "subPath": "triton"},  # noqa: S108
        ],
        "startupProbe": {**_probe("/readyz"), "periodSeconds": 5, "failureThreshold": 60},
        "livenessProbe": {**_probe("/readyz"), "periodSeconds": 10, "failureThreshold": 6},
        # The gateway drains first: until it is done, Triton must stay.
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", str(_DRAIN_S)]}}},
    }


def _gateway(wishes: Wishes) -> Object:
    return {
        "name": "gateway",
        "image": wishes.gateway_image,
        "args": [
            "gateway",
            f"--repository={MODELS_FOLDER}",
            f"--url=127.0.0.1:{PORTS['grpc']}",
            "--host=0.0.0.0",
            f"--port={GATEWAY_PORT}",
            f"--keys={_KEYS_FOLDER}/keys.json",
        ],
        "ports": [{"name": "gateway", "containerPort": GATEWAY_PORT}],
        "resources": {"requests": {"cpu": "250m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}},
        "securityContext": _locked_down(),
        "volumeMounts": [
            {"name": "models", "mountPath": MODELS_FOLDER, "readOnly": True},
            {"name": "keys", "mountPath": _KEYS_FOLDER, "readOnly": True},
            {"name": "scratch", "mountPath": "/tmp", "subPath": "gateway"},  # noqa: S108
        ],
        "readinessProbe": {**_probe("/readyz"), "periodSeconds": 5, "failureThreshold": 2},
        "livenessProbe": {**_probe("/healthz"), "periodSeconds": 10, "failureThreshold": 3},
        # Until every node has heard that this pod is going, requests still come.
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", "5"]}}},
    }


def _probe(path: str) -> Object:
    return {"httpGet": {"path": path, "port": GATEWAY_PORT}, "timeoutSeconds": 3}


def _locked_down() -> Object:
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def _autoscaling(wishes: Wishes, name: str) -> Object:
    metric = {
        "metric": {"name": QUEUE_METRIC},
        "target": {"type": "AverageValue", "averageValue": str(wishes.pending)},
    }
    return {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "minReplicas": wishes.replicas,
        "maxReplicas": max(wishes.replicas, wishes.most_replicas),
        "metrics": [{"type": "Pods", "pods": metric}],
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 300}},
    }


def _network(wishes: Wishes, chosen: Object) -> Object:
    """In: callers to the gateway, Prometheus to Triton's metrics. Out: nothing."""
    callers: Object = {"ports": [{"protocol": "TCP", "port": GATEWAY_PORT}]}
    if wishes.callers:
        callers["from"] = [_namespace(wishes.callers)]
    metrics = {
        "ports": [{"protocol": "TCP", "port": port} for port in (PORTS["metrics"], GATEWAY_PORT)],
        "from": [_namespace(wishes.monitoring)],
    }
    return {
        "podSelector": {"matchLabels": chosen},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [callers, metrics],
        "egress": [],
    }


def _namespace(name: str) -> Object:
    return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}


def _label(name: str) -> str:
    """A model's name as Kubernetes allows names: lower case letters, digits and '-', 50 at most."""
    plain = "".join(character if character.isalnum() and character.isascii() else "-" for character in name.lower())
    return f"trimaran-{plain.strip('-')}"[:50].strip("-")
