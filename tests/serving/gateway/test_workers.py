"""Several processes on one port: the limits are those of one gateway, and a dead worker is replaced."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import psutil
import pytest

from tests.serving.gateway.worlds import Running, gateway
from tests.serving.worlds import eventually
from trimaran.core.errors import UsageError
from trimaran.serving.gateway.admission import RateLimiter
from trimaran.serving.gateway.metrics import joined
from trimaran.serving.gateway.refusals import Refusal
from trimaran.serving.gateway.settings import GatewaySettings, RateLimit, RequestLimits
from trimaran.serving.gateway.shared import SharedBuckets, SharedPages, shared_memory
from trimaran.serving.gateway.workers import share_of
from trimaran.serving.triton.server import Server

TEXT = {"model": "vectors", "input": "the cat"}


def settings_with(**options: object) -> GatewaySettings:
    return GatewaySettings.model_validate({"repository": Path(), "triton_url": "127.0.0.1:1", **options})


def test_workers_divide_what_triton_and_memory_hold_and_keep_what_one_request_may_have() -> None:
    whole = settings_with(workers=4, in_flight=64, queue=10, rate=RateLimit(per_s=5, burst=5))
    share = share_of(whole)
    assert (share.in_flight, share.queue, share.limits.connections) == (16, 3, 1024)
    assert share.limits.all_bodies_bytes == whole.limits.all_bodies_bytes // 4
    assert (share.rate, share.limits.texts, share.limits.body_bytes) == (whole.rate, 2048, 8 << 20)


@pytest.mark.parametrize(
    "options",
    [{"in_flight": 3}, {"limits": RequestLimits(connections=3)}, {"limits": RequestLimits(body_bytes=1 << 27)}],
)
def test_a_share_too_small_for_one_request_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="4 workers share"):
        share_of(settings_with(workers=4, **options))


def test_a_rate_is_one_for_all_workers_and_each_callers_own() -> None:
    descriptor = shared_memory("test", SharedBuckets.size_bytes)
    one, other = (
        RateLimiter(RateLimit(per_s=1, burst=3), buckets=SharedBuckets(descriptor), now=lambda: 7.0) for _ in range(2)
    )
    for limiter in (one, other, one):
        limiter.take("a")
    for limiter in (one, other):
        with pytest.raises(Refusal):
            limiter.take("a")
        limiter.take("b")
    os.close(descriptor)


def test_metrics_of_all_workers_are_one_page_with_a_label_for_each() -> None:
    descriptor = shared_memory("test", SharedPages.size_bytes(2))
    head = "# HELP x_total Requests.\n# TYPE x_total counter\n"
    for number in range(2):
        page = f'{head}x_total{{route="/"}} {number}\nx_total {number}\n'
        SharedPages(descriptor, 2, number).write(page.encode())
    assert joined(SharedPages(descriptor, 2, 0).read()).decode() == (
        f'{head}x_total{{worker="0",route="/"}} 0\nx_total{{worker="0"}} 0\n'
        'x_total{worker="1",route="/"} 1\nx_total{worker="1"} 1\n'
    )
    os.close(descriptor)


def answered(running: Running) -> float:
    """The requests for vectors that all workers together answered."""
    page = running.ask("/metrics").body.decode()
    lines = re.findall(r"^trimaran_gateway_requests_total\{(.*)\} (\S+)$", page, re.M)
    return sum(float(number) for labels, number in lines if "/v1/embeddings" in labels and 'status="200"' in labels)


def workers_of(running: Running) -> list[psutil.Process]:
    return [child for child in psutil.Process(running.pid).children() if child.status() != psutil.STATUS_ZOMBIE]


def status_of(running: Running) -> int:
    """Each request is a new connection, which goes to either worker."""
    return running.ask("/v1/embeddings", TEXT).status


@pytest.mark.slow
def test_two_workers_keep_one_rate_and_a_killed_one_is_replaced_without_a_lost_request(
    server: Server, tmp_path: Path
) -> None:
    options = ("--workers", 2, "--text-rate", 0.001, "--text-burst", 6)
    with gateway(server.repository, server.grpc_url, tmp_path, *options) as running:
        assert [status_of(running) for _ in range(9)] == [200] * 6 + [429] * 3
        assert eventually(lambda: answered(running) == 6)
        workers = workers_of(running)
        assert len(workers) == 2
        workers[0].send_signal(signal.SIGKILL)
        workers[0].wait(60)
        assert [running.ask("/healthz", key="").status for _ in range(16)] == [200] * 16
        assert eventually(lambda: len(workers_of(running)) == 2)
        assert [status_of(running) for _ in range(4)] == [429] * 4, "the successor knows the rate"
        left = workers_of(running)
    assert not any(worker.is_running() for worker in left), "they end with the gateway"
