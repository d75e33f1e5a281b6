"""`trimaran kubernetes`: the objects that serve a model in a cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from trimaran.cli.app import app
from trimaran.cli.options import REPOSITORY, JsonOption
from trimaran.cli.output import emit
from trimaran.serving.container.kubernetes_options import KubernetesOptions

_DEFAULTS = KubernetesOptions()


@app.command(rich_help_panel="Serve")
def kubernetes(
    name: Annotated[str, typer.Argument(help="The model to serve.")],
    repository: Annotated[
        Path, typer.Option("--repository", help="The model repository, read for what the model needs.")
    ] = REPOSITORY,
    namespace: Annotated[str, typer.Option("--namespace", help="The namespace of the objects.")] = _DEFAULTS.namespace,
    claim: Annotated[str, typer.Option("--claim", help="The volume claim that holds the repository.")] = (
        _DEFAULTS.claim
    ),
    image: Annotated[
        str, typer.Option("--image", help="Triton under trimaran; by default trimaran-cpu, for KServe trimaran-triton.")
    ] = "",
    gateway_image: Annotated[str, typer.Option("--gateway-image", help="The gateway.")] = _DEFAULTS.gateway_image,
    replicas: Annotated[int, typer.Option("--replicas", min=1, help="Fewest pods.")] = _DEFAULTS.replicas,
    most_replicas: Annotated[int, typer.Option("--most-replicas", min=1, help="Most pods.")] = (
        _DEFAULTS.most_replicas
    ),
    pending: Annotated[
        int, typer.Option("--pending", min=1, help="Requests that may wait in one Triton before a pod is added.")
    ] = _DEFAULTS.pending,
    callers: Annotated[str, typer.Option("--callers", help="The only namespace that may call; by default all.")] = "",
    monitoring: Annotated[str, typer.Option("--monitoring", help="The namespace that reads metrics.")] = (
        _DEFAULTS.monitoring
    ),
    two_tiers: Annotated[
        bool, typer.Option("--two-tiers", help="Gateways and Tritons that grow apart, for more than a few pods.")
    ] = False,
    gateways: Annotated[int, typer.Option("--gateways", min=1, help="With --two-tiers: gateways at least.")] = (
        _DEFAULTS.gateways
    ),
    texts_in_flight: Annotated[
        int,
        typer.Option("--texts-in-flight", min=1, help="With --two-tiers: texts for each Triton before one is added."),
    ] = _DEFAULTS.texts_in_flight,
    model_image: Annotated[
        str, typer.Option("--model-image", help="With --two-tiers: the model as `trimaran package --push` printed it.")
    ] = "",
    by_init: Annotated[
        bool, typer.Option("--by-init", help="Pull --model-image in an init container, not as an image volume.")
    ] = False,
    kserve: Annotated[
        bool, typer.Option("--kserve", help="An InferenceService and its runtime for KServe instead; no gateway.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print Kubernetes objects for a model: Deployment, Service, autoscaler, disruption budget and network policy.

    Apply them after the images of deploy/ are where the cluster finds them, the repository is in the claim, and a
    secret NAME-keys holds keys.json (see docs/gateway.md).

    `--two-tiers` prints them for gateways and Tritons apart; docs/many.md shows the whole way.

    Example: `trimaran kubernetes minilm | kubectl apply -f -`
    """
    import yaml

    from trimaran.core.choices import CPU_IMAGE, TRITON_IMAGE
    from trimaran.core.errors import UsageError
    from trimaran.serving.container.image import release_of, served_model
    from trimaran.serving.container.kserve import kserve_objects
    from trimaran.serving.container.kubernetes import objects
    from trimaran.serving.container.kubernetes_tiers import tiers

    options = KubernetesOptions(
        namespace=namespace,
        claim=claim,
        image=image or (TRITON_IMAGE if kserve else CPU_IMAGE),
        gateway_image=gateway_image,
        replicas=replicas,
        most_replicas=most_replicas,
        pending=pending,
        callers=callers,
        monitoring=monitoring,
        gateways=gateways,
        texts_in_flight=texts_in_flight,
        model_image=model_image,
        by_init=by_init,
    )
    if two_tiers and kserve:
        raise UsageError("KServe has tiers of its own.", hint="Leave out --two-tiers or --kserve.")
    if model_image and not two_tiers:
        raise UsageError("--model-image wants --two-tiers.", hint="One pod reads the repository from --claim.")
    model = served_model(repository, name)
    if kserve:
        made = kserve_objects(model, options)
    else:
        made = (tiers if two_tiers else objects)(model, release_of(repository, name), options)
    if as_json:
        emit({"apiVersion": "v1", "kind": "List", "items": made})
    else:
        # Through JSON, which has no shared parts: YAML would write those as references, and people read this.
        typer.echo(yaml.safe_dump_all(map(json.loads, map(json.dumps, made)), sort_keys=False), nl=False)
