"""A gateway's life: it listens until it is told to end, and answers what it has taken on first."""

from __future__ import annotations

import contextlib
import logging
import resource
import socket
from collections.abc import Callable

from trimaran.core.errors import UnavailableError, UsageError
from trimaran.serving.gateway.settings import Settings


def serve(settings: Settings, *, on_ready: Callable[[int], None] = lambda port: None) -> None:
    """Blocks until SIGINT or SIGTERM; `on_ready` is told the port.

    Raises UsageError for a port in use or a certificate that cannot be read, UnavailableError without uvicorn.
    """
    try:
        import uvicorn

        from trimaran.serving.gateway.app import Gateway
        from trimaran.serving.gateway.protocol import guarded
    except ImportError as error:
        raise UnavailableError(
            f"The gateway wants its libraries: {error}.", hint="pip install 'trimaran[gateway]' -c constraints.txt"
        ) from error
    _require_readable_tls(settings)
    _allow_connections(settings.limits.connections)
    with _listener(settings) as listener:

        async def application(scope: object, receive: object, send: object) -> None:
            await _gateway()(scope, receive, send)  # type: ignore[arg-type]

        made: list[Gateway] = []

        def _gateway() -> Gateway:
            # In the event loop: its clients belong to it.
            if not made:
                made.append(Gateway(settings))
            return made[0]

        # It warns of every line that is not HTTP, and those come from outside.
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        patience = settings.patience
        config = uvicorn.Config(
            application,
            http=guarded(settings.limits, patience),
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=max(1, int(patience.idle_s)),
            timeout_graceful_shutdown=max(1, int(patience.drain_s)),
            ssl_certfile=settings.tls_certificate,
            ssl_keyfile=settings.tls_key,
        )

        class Announced(uvicorn.Server):
            async def startup(self, sockets: list[socket.socket] | None = None) -> None:
                await super().startup(sockets)
                on_ready(listener.getsockname()[1])

        with contextlib.suppress(KeyboardInterrupt):
            Announced(config).run(sockets=[listener])


def _listener(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # asyncio sets TCP_NODELAY only on sockets that name their protocol; without it keep-alive requests wait 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise UsageError(
            f"{settings.host}:{settings.port} cannot be listened on: {error.strerror}.",
            hint="Stop what listens there, or give another --port or --host.",
        ) from error
    return listener


def _require_readable_tls(settings: Settings) -> None:
    given = (settings.tls_certificate, settings.tls_key)
    if any(given) and not all(given):
        raise UsageError("TLS wants both a certificate and its key.", hint="Give --tls-cert and --tls-key.")
    for path in given:
        if path is not None and not path.is_file():
            raise UsageError(f"{path} is not a file.", hint="Give files in PEM format.")


def _allow_connections(wanted: int) -> None:
    """As many open files as the connections may take, as far as this user may have them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + 256
    if soft < needed:
        limit = needed if hard == resource.RLIM_INFINITY else min(hard, needed)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
