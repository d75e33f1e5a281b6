"""The flags of tritonserver, written once: local servers, containers and the compose file start it alike."""

from __future__ import annotations

from collections.abc import Sequence

EXIT_TIMEOUT_S = 10
# The header that opens the restricted APIs.
SECRET_HEADER = "trimaran-control"  # noqa: S105  (a name)
# APIs that inference does not need. `load` accepts the files of a model, so its callers run code as the server.
_RESTRICTED = "model-repository,shared-memory,trace,logging"


def server_flags(repository: object, models: Sequence[str]) -> list[str]:
    """What every tritonserver of ours is told. Only the named `models` are loaded."""
    return [
        f"--model-repository={repository}",
        # Explicit, so that one model can be loaded again alone, and models that nobody calls stay out of memory.
        "--model-control-mode=explicit",
        *(f"--load-model={name}" for name in models),
        # Our configurations are complete: what Triton would add was not proven.
        "--disable-auto-complete-config",
        # Turns instance priorities on: a spare instance works only while the others are busy.
        "--rate-limit=execution_count",
        f"--exit-timeout-secs={EXIT_TIMEOUT_S}",
    ]


def restricting_flags(secret: str) -> list[str]:
    """Close what is not needed to infer to everyone who does not send the secret."""
    closed = f"{_RESTRICTED}:{SECRET_HEADER}={secret}"
    return [f"--http-restricted-api={closed}", f"--grpc-restricted-protocol={closed}"]


def address_flags(address: str, *, metrics_address: str) -> list[str]:
    """`address` is where HTTP and gRPC listen."""
    return [f"--http-address={address}", f"--grpc-address={address}", f"--metrics-address={metrics_address}"]


def tracing_flags(otlp: str) -> list[str]:
    """A trace of every request for the collector, as part of the caller's trace where it sends a `traceparent`."""
    if not otlp:
        return []
    settings = (
        "mode=opentelemetry",
        "level=TIMESTAMPS",
        "rate=1",
        f"opentelemetry,url={otlp.rstrip('/')}/v1/traces",
        # With its own default, Triton 2.51 sent a single span only at its exit.
        "opentelemetry,bsp_schedule_delay=1000",
    )
    return [f"--trace-config={setting}" for setting in settings]
