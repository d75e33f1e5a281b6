"""Running it: shedding, timeouts, draining, readiness, metrics, log, TLS, CORS, traces."""

from __future__ import annotations

import concurrent.futures
import json
import os
import signal
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.commands import COMMAND, environment, trimaran_here
from tests.homes import home_at
from tests.serving.gateway.worlds import HeldModel, Running, collecting, gateway, held_world, slow_world
from tests.serving.worlds import eventually, processes_with
from trimaran.serving.triton.server import Server, launch


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory, triton: None) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("slow")
    with home_at(folder / "home"):
        with launch(slow_world(folder), drain=False) as running:
            yield running


@pytest.fixture(scope="module")
def held_server(tmp_path_factory: pytest.TempPathFactory, triton: None) -> Iterator[tuple[HeldModel, Server]]:
    folder = tmp_path_factory.mktemp("held")
    model = held_world(folder)
    with home_at(folder / "home"):
        with launch(model.repository, drain=False) as running:
            yield model, running


@pytest.fixture
def held(held_server: tuple[HeldModel, Server]) -> Iterator[tuple[HeldModel, Server]]:
    """Nothing is held before a test, and nothing stays held after it."""
    model, _ = held_server
    model.reset()
    yield held_server
    model.release()


def metric(running: Running, name: str) -> float:
    lines = running.ask("/metrics").body.decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"trimaran_gateway_{name} "))


HOLD = {"input": "hold"}


def test_more_than_room_and_queue_hold_is_shed_with_a_time_to_come_back(
    held: tuple[HeldModel, Server], tmp_path: Path
) -> None:
    model, server = held
    options = ("--in-flight", 1, "--queue", 2, "--queue-timeout", 60, "--timeout", 120)
    with gateway(server.repository, server.grpc_url, tmp_path, *options) as running:
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            taken = [pool.submit(running.ask, "/v1/embeddings", HOLD)]
            assert eventually(model.holds)
            taken += [pool.submit(running.ask, "/v1/embeddings", HOLD) for _ in range(2)]
            assert eventually(lambda: metric(running, "queue_length") == 2)
            shed = [running.ask("/v1/embeddings", HOLD) for _ in range(5)]
            model.release()
            assert [request.result().status for request in taken] == [200] * 3
    assert [answer.status for answer in shed] == [503] * 5
    for answer in shed:
        assert answer.json["error"]["code"] == "overloaded"
        assert int(answer.headers["retry-after"]) >= 1


def test_waiting_has_its_time(held: tuple[HeldModel, Server], tmp_path: Path) -> None:
    model, server = held
    options = ("--in-flight", 1, "--queue-timeout", 0.2, "--timeout", 120)
    with gateway(server.repository, server.grpc_url, tmp_path, *options) as running:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            taken = pool.submit(running.ask, "/v1/embeddings", HOLD)
            assert eventually(model.holds)
            for _ in range(2):
                late = running.ask("/v1/embeddings", HOLD)
                assert (late.status, late.json["error"]["code"]) == (503, "overloaded")
            model.release()
            assert taken.result().status == 200


def test_answering_has_its_time(held: tuple[HeldModel, Server], tmp_path: Path) -> None:
    model, server = held
    with gateway(server.repository, server.grpc_url, tmp_path, "--timeout", 1.5) as running:
        late = running.ask("/v1/embeddings", HOLD)
        assert (late.status, late.json["error"]["code"]) == (504, "timeout")
        model.release()
        assert eventually(lambda: running.ask("/v1/embeddings", {"input": "dog"}).status == 200)


def test_requests_in_flight_are_answered_before_it_ends(slow: Server, tmp_path: Path) -> None:
    with gateway(slow.repository, slow.grpc_url, tmp_path) as running:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            (slow.repository / "slow" / "1" / "asleep").unlink(missing_ok=True)
            waiting = pool.submit(running.ask, "/v1/embeddings", {"input": "1.5"})
            assert eventually((slow.repository / "slow" / "1" / "asleep").exists)
            os.kill(running.pid, signal.SIGTERM)
            assert waiting.result().status == 200


def test_one_caller_too_eager_is_told_when_to_come_back(slow: Server, tmp_path: Path) -> None:
    with gateway(slow.repository, slow.grpc_url, tmp_path, "--rate", 0.01, "--burst", 2) as running:
        statuses = [running.ask("/v1/embeddings", {"input": "dog"}) for _ in range(3)]
        assert [answer.status for answer in statuses] == [200, 200, 429]
        assert int(statuses[-1].headers["retry-after"]) > 10
        assert running.ask("/healthz", key="").status == 200, "probes are not callers"


@pytest.mark.slow
def test_readiness_is_by_canaries_and_not_by_tritons_word(tmp_path: Path, triton: None) -> None:
    """A killed python stub leaves Triton saying that it is ready."""
    import tritonclient.http

    with home_at(tmp_path / "home"):
        with launch(slow_world(tmp_path), drain=False) as server:
            options = ("--queue-timeout", 1, "--canary-interval", 0.5, "--timeout", 3)
            with gateway(server.repository, server.grpc_url, tmp_path / "g", *options, auth=False) as running:
                stubs = [pid for pid in processes_with(f"trimaran-{os.getpid()}-") if "stub" in _command(pid)]
                for pid in stubs:
                    if str(server.repository) in _command(pid):
                        os.kill(pid, signal.SIGKILL)
                assert eventually(lambda: running.ask("/readyz").status == 503)
                with tritonclient.http.InferenceServerClient(server.http_url) as plain:
                    assert plain.is_server_ready()
                assert running.ask("/healthz").status == 200
                assert b'model_ready{model="slow"} 0.0' in running.ask("/metrics").body
                refused = running.ask("/v1/embeddings", {"input": "dog"})
                assert refused.status in (502, 503, 504)
                assert str(server.ports.grpc) not in refused.body.decode()


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\x00", " ")
    except OSError:
        return ""


def test_a_triton_that_is_away_gives_503_and_comes_back(slow: Server, tmp_path: Path) -> None:
    """The gateway starts before its Triton and finds it later."""
    from trimaran.serving.triton import ports

    chosen = ports.choose(http=None, grpc=None, metrics=None)
    home = tmp_path / "home"
    command = [*COMMAND, "gateway", "--repository", str(slow.repository), "--url", f"127.0.0.1:{chosen.grpc}"]
    with subprocess.Popen(
        [*command, "--port", "0", "--no-auth", "--json"], env=environment(home), stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            running = Running(json.loads(process.stdout.readline())["port"], process.pid, "", tmp_path)
            assert running.ask("/healthz").status == 200
            away = running.ask("/readyz")
            assert (away.status, away.json["error"]["code"]) == (503, "not_ready")
            refused = running.ask("/v1/embeddings", {"model": "slow", "input": "dog"})
            assert (refused.status, refused.json["error"]["code"]) == (503, "not_ready")
            assert int(refused.headers["retry-after"]) >= 1
            with home_at(home):
                with launch(slow.repository, grpc_port=chosen.grpc, drain=False):
                    assert eventually(lambda: running.ask("/readyz").status == 200)
                    assert running.ask("/v1/embeddings", {"input": "dog"}).status == 200
        finally:
            process.send_signal(signal.SIGTERM)


def test_no_key_must_be_asked_for_and_warns_where_others_can_reach_it(tmp_path: Path) -> None:
    refused = trimaran_here("gateway", "--url", "127.0.0.1:1", home=tmp_path / "home")
    assert (refused.returncode, "--no-auth" in refused.stderr) == (2, True)
    for host, warned in (("127.0.0.1", False), ("0.0.0.0", True)):
        command = [*COMMAND, "gateway", "--url", "127.0.0.1:1", "--no-auth", "--host", host, "--port", "0"]
        with subprocess.Popen(
            command, env=environment(tmp_path / "home"), stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stderr is not None
            said = ""
            while "Gateway at" not in said:
                said += process.stderr.readline()
            process.send_signal(signal.SIGTERM)
            assert ("everybody who reaches" in said) == warned


def test_metrics_count_by_route_and_status_and_only_known_names_are_labels(running: Running) -> None:
    running.ask("/v1/embeddings", {"model": "vectors", "input": ["the cat", "dog"]})
    running.ask("/nowhere-xyzzy")
    running.ask("/v1/embeddings", {"model": "xyzzy", "input": "a"})
    found = running.ask("/metrics")
    assert found.headers["content-type"].startswith("text/plain; version=0.0.4")
    text = found.body.decode()
    assert 'trimaran_gateway_requests_total{route="/v1/embeddings",status="200"}' in text
    assert 'route="unmatched",status="404"' in text
    assert 'trimaran_gateway_tokens_total{model="vectors"}' in text
    assert 'trimaran_gateway_model_ready{model="classes"} 1.0' in text
    assert "trimaran_gateway_queue_length 0.0" in text
    assert "xyzzy" not in text


def test_the_log_says_who_what_and_how_long(running: Running) -> None:
    running.ask("/v1/embeddings", {"model": "vectors", "input": ["the cat"]}, headers={"X-Request-ID": "mine-1"})

    def lines() -> list[dict[str, Any]]:
        return [line for line in running.log_lines() if line["id"] == "mine-1"]

    assert eventually(lines), "it is written when the answer is on its way"
    (line,) = lines()
    assert {
        "key": "tests",
        "route": "/v1/embeddings",
        "status": 200,
        "model": "vectors",
        "texts": 1,
        "tokens": 4,
    }.items() <= line.items()
    assert line["milliseconds"] > 0


@pytest.mark.parametrize("given", ["a b", "a\tb", "x" * 129, "ü", ""])
def test_a_strange_request_id_is_replaced(running: Running, given: str) -> None:
    found = running.ask("/healthz", headers={"X-Request-ID": given.encode("utf-8").decode("latin-1")})
    assert len(found.headers["x-request-id"]) == 32


def test_a_full_disk_loses_log_lines_and_no_request(server: Server, tmp_path: Path) -> None:
    with gateway(server.repository, server.grpc_url, tmp_path, "--access-log", "/dev/full") as running:
        assert running.ask("/v1/embeddings", {"model": "vectors", "input": "the cat"}).status == 200
        text = running.ask("/metrics").body.decode()
    lost = next(line for line in text.splitlines() if line.startswith("trimaran_gateway_lost_log_lines_total"))
    assert float(lost.split()[1]) >= 1


def test_pages_of_other_origins_may_call_only_when_allowed(server: Server, running: Running, tmp_path: Path) -> None:
    ask_first = {"Origin": "https://good.example", "Access-Control-Request-Method": "POST"}
    off = running.ask("/v1/embeddings", method="OPTIONS", key="", headers=ask_first)
    assert off.status == 401
    assert not [name for name in off.headers if name.startswith("access-control")]
    with gateway(server.repository, server.grpc_url, tmp_path, "--cors", "https://good.example") as allowed:
        found = allowed.ask("/v1/embeddings", method="OPTIONS", key="", headers=ask_first)
        assert (found.status, found.headers["access-control-allow-origin"]) == (204, "https://good.example")
        answered = allowed.ask("/v1/models", headers={"Origin": "https://good.example"})
        assert answered.headers["access-control-allow-origin"] == "https://good.example"
        other = allowed.ask("/v1/models", headers={"Origin": "https://bad.example"})
        assert "access-control-allow-origin" not in other.headers


def test_tls_when_given_a_certificate(server: Server, tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", str(key), "-out", str(certificate)],
        capture_output=True, check=False,
    )  # fmt: skip
    if made.returncode:
        pytest.skip("openssl made no certificate")
    home = tmp_path / "home"
    command = [
        *COMMAND, "gateway", "--repository", str(server.repository), "--url", server.grpc_url, "--no-auth", "--json",
        "--port", "0", "--tls-cert", str(certificate), "--tls-key", str(key),
    ]  # fmt: skip
    with subprocess.Popen(command, env=environment(home), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["url"]
            assert url.startswith("https://")
            context = ssl.create_default_context(cafile=str(certificate))
            with urllib.request.urlopen(f"{url}/healthz", context=context, timeout=30) as response:
                assert json.load(response) == {"status": "ok"}
        finally:
            process.send_signal(signal.SIGTERM)
    half = trimaran_here("gateway", "--url", "127.0.0.1:1", "--no-auth", "--tls-cert", certificate, home=home)
    assert half.returncode == 2
    assert "both" in half.stderr


@pytest.fixture
def collector() -> Iterator[tuple[str, list[bytes]]]:
    with collecting("127.0.0.1") as collected:
        yield collected


def spans_of(received: list[bytes], trace: str) -> list[tuple[str, str, str]]:
    """Name, id and parent of the spans of one trace; the gateway sends protobuf, Triton JSON."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    found = []
    for data in list(received):
        if data.startswith(b"{"):
            told = json.loads(data)["resourceSpans"]
            spans = [span for resource in told for scope in resource["scopeSpans"] for span in scope["spans"]]
            mine = [span for span in spans if span["traceId"] == trace]
            found += [(span["name"], span["spanId"], span.get("parentSpanId", "")) for span in mine]
            continue
        for resource in ExportTraceServiceRequest.FromString(data).resource_spans:
            for span in (span for scope in resource.scope_spans for span in scope.spans):
                if span.trace_id.hex() == trace:
                    found.append((span.name, span.span_id.hex(), span.parent_span_id.hex()))
    return found


def test_a_trace_goes_from_the_caller_through_the_gateway_to_triton(
    collector: tuple[str, list[bytes]], tmp_path: Path, triton: None
) -> None:
    url, received = collector
    trace, caller = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    with home_at(tmp_path / "home"):
        with launch(slow_world(tmp_path), otlp=url, drain=False) as server:
            with gateway(server.repository, server.grpc_url, tmp_path / "g", "--otlp", url) as running:
                headers = {"traceparent": f"00-{trace}-{caller}-01"}

                def arrived() -> bool:
                    # Triton sends what it has when more comes, so more is asked until it does.
                    assert running.ask("/v1/embeddings", {"input": "xyzzy"}, headers=headers).status == 200
                    return any(name == "InferRequest" for name, *_ in spans_of(received, trace))

                eventually(arrived, within_s=15)
    spans = spans_of(received, trace)
    own = {number for name, number, parent in spans if name == "/v1/embeddings" and parent == caller}
    tritons = {parent for name, _, parent in spans if name == "InferRequest"}
    assert tritons and tritons <= own
    assert b"xyzzy" not in b"".join(received)


def test_a_collector_that_is_away_holds_nobody_up(server: Server, tmp_path: Path) -> None:
    with gateway(server.repository, server.grpc_url, tmp_path, "--otlp", "http://127.0.0.1:1") as running:
        assert running.ask("/v1/embeddings", {"model": "vectors", "input": "the cat"}).status == 200
