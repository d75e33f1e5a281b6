"""Run a gateway: listen until SIGINT or SIGTERM, then answer the requests in flight and stop."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import resource
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from trimaran.core.errors import UnavailableError, UsageError, install_hint
from trimaran.serving.gateway.settings import GatewaySettings

if TYPE_CHECKING:
    from trimaran.serving.gateway.shared import SharedState


def serve(settings: GatewaySettings, *, on_ready: Callable[[int], None] = lambda port: None) -> None:
    """Blocks until SIGINT or SIGTERM. `on_ready` gets the port.

    Raises UsageError for a port in use or a certificate that cannot be read, UnavailableError without its libraries.
    """
    _require_libraries()
    _require_readable_tls(settings)
    _allow_connections(settings.limits.connections)
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(_listener(settings.host, settings.port))
        if settings.workers == 1:
            run(settings, listener, on_ready=on_ready)
            return
        from trimaran.serving.gateway.workers import supervise

        # A port that others use was refused above: the workers' sockets would share it with another gateway's.
        port = listener.getsockname()[1]
        listener.close()
        listeners = [
            stack.enter_context(_listener(settings.host, port, is_shared=True)) for _ in range(settings.workers)
        ]
        supervise(settings, listeners, on_ready=on_ready)


def require_possible(host: str, port: int) -> None:
    """Raise now what `serve` would: UnavailableError without its libraries, UsageError for a port in use."""
    _require_libraries()
    _listener(host, port).close()


def run(
    settings: GatewaySettings,
    listener: socket.socket,
    *,
    shared: SharedState | None = None,
    on_ready: Callable[[int], None],
) -> None:
    """A gateway in this process. Blocks until SIGINT or SIGTERM."""
    import uvicorn

    from trimaran.serving.gateway.app import Gateway, application
    from trimaran.serving.gateway.protocol import guarded

    # Short texts are tokenised on the event loop. A shared pool of threads would make it wait for the long ones.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    # uvicorn warns of every line that is not HTTP, and callers can send many of them.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    timeouts = settings.timeouts
    config = uvicorn.Config(
        application(Gateway(settings, shared)),
        http=guarded(settings.limits, timeouts),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=max(1, int(timeouts.idle_s)),
        timeout_graceful_shutdown=max(1, int(timeouts.drain_s)),
        ssl_certfile=settings.tls_certificate,
        ssl_keyfile=settings.tls_key,
    )

    class AnnouncingServer(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            _collect_garbage_less_often()
            on_ready(listener.getsockname()[1])

    with contextlib.suppress(KeyboardInterrupt):
        AnnouncingServer(config).run(sockets=[listener])


def _require_libraries() -> None:
    try:
        import uvicorn  # noqa: F401

        from trimaran.serving.gateway import app, protocol  # noqa: F401
    except ImportError as error:
        raise UnavailableError(f"The gateway needs its libraries: {error}.", hint=install_hint("gateway")) from error


def _listener(host: str, port: int, *, is_shared: bool = False) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only on sockets that name their protocol; without it keep-alive requests wait 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if is_shared:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        listener.bind((host, port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise UsageError(
            f"{host}:{port} cannot be listened on: {error.strerror}.",
            hint="Stop what listens there, or give another --port or --host.",
        ) from error
    return listener


def _require_readable_tls(settings: GatewaySettings) -> None:
    paths = (settings.tls_certificate, settings.tls_key)
    if any(paths) and not all(paths):
        raise UsageError("TLS needs both a certificate and its key.", hint="Give --tls-cert and --tls-key.")
    for path in paths:
        if path is not None and not path.is_file():
            raise UsageError(f"{path} is not a file.", hint="Give files in PEM format.")


def _collect_garbage_less_often() -> None:
    """Requests in flight are many young objects that are not garbage, and imported modules never become garbage.

    Collecting at Python's defaults (700 objects) takes a tenth of the time of a request at 32 callers.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)


def _allow_connections(connections: int) -> None:
    """Raise the limit of open files to what the connections need, as far as this user may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + 256
    if soft < needed:
        limit = needed if hard == resource.RLIM_INFINITY else min(hard, needed)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
