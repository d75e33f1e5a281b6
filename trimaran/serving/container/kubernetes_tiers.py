"""Kubernetes objects in two tiers: gateways that callers reach, and Tritons behind a headless Service.

Each tier grows by itself: gateways by CPU, Tritons by their queue and by the texts in flight. The version of the model
stands in the pod template, so that another version rolls the Tritons. The gateways answer with one version at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trimaran.serving.container.image import EVERYWHERE, MODELS_FOLDER, PORTS, PackedModel
from trimaran.serving.container.kubernetes import (
    GATEWAY_PORT,
    QUEUE_METRIC,
    RELEASE_ANNOTATION,
    Object,
    finish,
    from_namespace,
    image_of,
    label_of,
    locked_down,
    object_of,
    placement,
    plans_mounts,
    plans_volumes,
    require_first_gpu,
    resources_of,
    serving,
    start_s,
)
from trimaran.serving.container.kubernetes_options import KubernetesOptions
from trimaran.serving.triton.flags import EXIT_TIMEOUT_S

TEXTS_METRIC = "trimaran_gateway_texts_in_flight"
# The label of that metric that names the gateways of this model: the pods' `app.kubernetes.io/name`, as Prometheus
# writes it. Gateways of other models in the namespace have the same metric.
_GATEWAYS_LABEL = "app_kubernetes_io_name"
# Where an image of `trimaran package` is mounted; the repository is inside.
_IMAGE_FOLDER = "/image"
_KEYS_FOLDER = "/etc/trimaran"
# Requests still arrive until every gateway knows that this pod is going.
_LEAVE_S = 5
_GATEWAY_DRAIN_S = 30


def tiers(model: PackedModel, release: str, options: KubernetesOptions) -> list[Object]:
    """`release` names the version by the digest of its files."""
    require_first_gpu(model)
    name = label_of(model.name)
    return [
        object_of("v1", "ServiceAccount", _meta(name, name, options), automountServiceAccountToken=False),
        *_triton_tier(model, release, name, options),
        *_gateway_tier(model, release, name, options),
    ]


def _meta(name: str, of: str, options: KubernetesOptions) -> Object:
    labels = {"app.kubernetes.io/name": name, "app.kubernetes.io/instance": of, "app.kubernetes.io/part-of": "trimaran"}
    return {"name": name, "namespace": options.namespace, "labels": labels}


def _chosen(name: str) -> Object:
    return {"app.kubernetes.io/name": name}


def _triton_tier(model: PackedModel, release: str, of: str, options: KubernetesOptions) -> list[Object]:
    name = f"{of}-tritons"
    meta = _meta(name, of, options)
    ports = [{"name": kind, "port": PORTS[kind], "targetPort": kind} for kind in ("grpc", "metrics")]
    pods = {"metric": {"name": QUEUE_METRIC}, "target": _average(options.pending)}
    of_our_gateways = {"matchLabels": {_GATEWAYS_LABEL: of}}
    texts = {
        "metric": {"name": TEXTS_METRIC, "selector": of_our_gateways},
        "target": _average(options.texts_in_flight),
    }
    network = {
        "ingress": [
            {"ports": _tcp(PORTS["grpc"]), "from": [{"podSelector": {"matchLabels": _chosen(of)}}]},
            {"ports": _tcp(PORTS["metrics"]), "from": [from_namespace(options.monitoring)]},
        ],
        # An init container pulls the model from a registry; otherwise nothing goes out.
        "egress": [{}] if options.model_image and options.by_init else [],
    }
    return [
        object_of("v1", "Service", meta, spec={"clusterIP": "None", "selector": _chosen(name), "ports": ports}),
        object_of(
            "apps/v1",
            "Deployment",
            meta,
            spec=_deployment(
                name, of, release, options.replicas, _triton_pod(model, options), options, PORTS["metrics"]
            ),
        ),
        _autoscaler(
            meta,
            options.replicas,
            options.most_replicas,
            [{"type": "Pods", "pods": pods}, {"type": "External", "external": texts}],
        ),
        *_guards(meta, name, network),
    ]


def _gateway_tier(model: PackedModel, release: str, name: str, options: KubernetesOptions) -> list[Object]:
    meta = _meta(name, name, options)
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}
    callers: Object = {"ports": _tcp(GATEWAY_PORT)}
    if options.callers:
        callers["from"] = [from_namespace(options.callers)]
    names = [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")]
    network = {
        "ingress": [callers, {"ports": _tcp(GATEWAY_PORT), "from": [from_namespace(options.monitoring)]}],
        "egress": [
            {"ports": _tcp(PORTS["grpc"]), "to": [{"podSelector": {"matchLabels": _chosen(f"{name}-tritons")}}]},
            {"ports": names},
            *([{}] if options.model_image and options.by_init else ()),
        ],
    }
    return [
        object_of(
            "v1",
            "Service",
            meta,
            spec={"selector": _chosen(name), "ports": [{"name": "http", "port": 80, "targetPort": "gateway"}]},
        ),
        object_of(
            "apps/v1",
            "Deployment",
            meta,
            spec=_deployment(name, name, release, options.gateways, _gateway_pod(name, options), options, GATEWAY_PORT),
        ),
        _autoscaler(meta, options.gateways, options.most_replicas, [{"type": "Resource", "resource": cpu}]),
        *_guards(meta, name, network),
    ]


def _deployment(
    name: str, account: str, release: str, replicas: int, pod: Object, options: KubernetesOptions, metrics_port: int
) -> Object:
    scrape = {"prometheus.io/scrape": "true", "prometheus.io/port": str(metrics_port), "prometheus.io/path": "/metrics"}
    return {
        "replicas": replicas,
        "selector": {"matchLabels": _chosen(name)},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
        "template": {
            "metadata": {
                "labels": _meta(name, account, options)["labels"],
                "annotations": {RELEASE_ANNOTATION: release, **scrape},
            },
            "spec": {
                "serviceAccountName": account,
                "automountServiceAccountToken": False,
                **placement(_chosen(name)),
                **pod,
            },
        },
    }


def _triton_pod(model: PackedModel, options: KubernetesOptions) -> Object:
    ready, live = (_probe(f"/v2/health/{word}", PORTS["http"]) for word in ("ready", "live"))
    container = {
        "name": "triton",
        **serving(model, options, _repository(options), f"--host={EVERYWHERE}"),
        "env": [{"name": key, "value": value} for key, value in sorted(model.variables.items())],
        "ports": [{"name": kind, "containerPort": port} for kind, port in PORTS.items()],
        "resources": resources_of(model),
        "securityContext": locked_down(),
        "volumeMounts": [
            *_model_mounts(options),
            *plans_mounts(model),
            {"name": "shared-memory", "mountPath": "/dev/shm"},  # noqa: S108  (inside the container)
            {"name": "scratch", "mountPath": "/tmp"},  # noqa: S108
        ],
        # Loading takes its time.
        "startupProbe": {**ready, "periodSeconds": 2, "failureThreshold": start_s(model) // 2},
        # All models are loaded. The watchdog inside unloads one that does not answer its canary.
        "readinessProbe": {**ready, "periodSeconds": 5, "failureThreshold": 2},
        # Only a process that has stopped is dead. Triton answers this without inference, however busy it is.
        "livenessProbe": {**live, "periodSeconds": 10, "failureThreshold": 6},
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", str(_LEAVE_S)]}}},
    }
    memory = {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}
    folder = _IMAGE_FOLDER if _is_mounted(options) else MODELS_FOLDER
    finishing = [finish(model, options, folder=_repository(options), mount=folder)] if model.prepared else []
    volumes = [memory, *plans_volumes(model, options)]
    return _pod(container, options, volumes, grace_s=_LEAVE_S + EXIT_TIMEOUT_S + 15, then=finishing)


def _gateway_pod(name: str, options: KubernetesOptions) -> Object:
    container = {
        "name": "gateway",
        **image_of(options.gateway_image),
        "args": [
            "gateway",
            f"--repository={_repository(options)}",
            # The headless Service has the address of every Triton that is ready.
            f"--url={name}-tritons.{options.namespace}.svc:{PORTS['grpc']}",
            "--host=0.0.0.0",
            f"--port={GATEWAY_PORT}",
            f"--keys={_KEYS_FOLDER}/keys.json",
            # The network policy lets only callers and Prometheus in, and metrics hold no text.
            "--open-metrics",
        ],
        "ports": [{"name": "gateway", "containerPort": GATEWAY_PORT}],
        "resources": {"requests": {"cpu": "500m", "memory": "256Mi"}, "limits": {"cpu": "2", "memory": "1Gi"}},
        "securityContext": locked_down(),
        "volumeMounts": [
            *_model_mounts(options),
            {"name": "keys", "mountPath": _KEYS_FOLDER, "readOnly": True},
            {"name": "scratch", "mountPath": "/tmp"},  # noqa: S108
        ],
        "startupProbe": {**_probe("/healthz", GATEWAY_PORT), "periodSeconds": 2, "failureThreshold": 30},
        # Some Triton answers a canary now. Overload alone does not change that: canaries have priority.
        "readinessProbe": {**_probe("/readyz", GATEWAY_PORT), "periodSeconds": 5, "failureThreshold": 2},
        "livenessProbe": {**_probe("/healthz", GATEWAY_PORT), "periodSeconds": 10, "failureThreshold": 3},
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", str(_LEAVE_S)]}}},
    }
    keys = {"name": "keys", "secret": {"secretName": f"{name}-keys", "optional": False}}
    return _pod(container, options, [keys], grace_s=_LEAVE_S + _GATEWAY_DRAIN_S)


def _pod(
    container: Object, options: KubernetesOptions, volumes: list[Object], *, grace_s: int, then: Sequence[Object] = ()
) -> Object:
    """The container with the model: from a claim, from an image that is mounted, or pulled by an init container.

    `then` are init containers that need the model.
    """
    pulling = {
        "name": "model",
        **image_of(options.image),
        "args": ["pull", options.model_image, f"--repository={MODELS_FOLDER}"],
        "securityContext": locked_down(),
        "volumeMounts": [
            {"name": "models", "mountPath": MODELS_FOLDER},
            {"name": "scratch", "mountPath": "/tmp"},  # noqa: S108
        ],
    }
    is_pulled = bool(options.model_image and options.by_init)
    models: Object = {"persistentVolumeClaim": {"claimName": options.claim, "readOnly": True}}
    if is_pulled:
        models = {"emptyDir": {}}
    elif options.model_image:
        models = {"image": {"reference": options.model_image, "pullPolicy": "IfNotPresent"}}
    first = [*([pulling] if is_pulled else ()), *then]
    return {
        "terminationGracePeriodSeconds": grace_s,
        **({"initContainers": first} if first else {}),
        "containers": [container],
        "volumes": [{"name": "models", **models}, *volumes, {"name": "scratch", "emptyDir": {}}],
    }


def _is_mounted(options: KubernetesOptions) -> bool:
    return bool(options.model_image) and not options.by_init


def _repository(options: KubernetesOptions) -> str:
    return f"{_IMAGE_FOLDER}/models" if _is_mounted(options) else MODELS_FOLDER


def _model_mounts(options: KubernetesOptions) -> list[Object]:
    folder = _IMAGE_FOLDER if _is_mounted(options) else MODELS_FOLDER
    return [{"name": "models", "mountPath": folder, "readOnly": True}]


def _autoscaler(meta: Object, least: int, most: int, metrics: list[Object]) -> Object:
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": meta["name"]},
        "minReplicas": least,
        "maxReplicas": max(least, most),
        "metrics": metrics,
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 300}},
    }
    return object_of("autoscaling/v2", "HorizontalPodAutoscaler", meta, spec=spec)


def _guards(meta: Object, name: str, network: Object) -> list[Object]:
    """A disruption budget and a network policy."""
    budget = {"maxUnavailable": 1, "selector": {"matchLabels": _chosen(name)}}
    policy = {"podSelector": {"matchLabels": _chosen(name)}, "policyTypes": ["Ingress", "Egress"], **network}
    return [
        object_of("policy/v1", "PodDisruptionBudget", meta, spec=budget),
        object_of("networking.k8s.io/v1", "NetworkPolicy", meta, spec=policy),
    ]


def _average(value: int) -> dict[str, Any]:
    return {"type": "AverageValue", "averageValue": str(value)}


def _tcp(port: int) -> list[Object]:
    return [{"protocol": "TCP", "port": port}]


def _probe(path: str, port: int) -> Object:
    return {"httpGet": {"path": path, "port": port}, "timeoutSeconds": 3}
