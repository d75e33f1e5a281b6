"""The flags that every tritonserver of ours is started with."""

from __future__ import annotations

from trimaran.serving.triton.flags import address_flags, server_flags, tracing_flags


def test_only_the_named_models_are_loaded() -> None:
    flags = server_flags("/models", ["a", "b"])
    assert [flag for flag in flags if flag.startswith("--load-model")] == ["--load-model=a", "--load-model=b"]
    assert {"--model-repository=/models", "--model-control-mode=explicit"} <= set(flags)


def test_metrics_may_listen_elsewhere() -> None:
    assert address_flags("127.0.0.1", metrics_address="0.0.0.0") == [
        "--http-address=127.0.0.1",
        "--grpc-address=127.0.0.1",
        "--metrics-address=0.0.0.0",
    ]


def test_traces_go_to_the_collector_and_nowhere_by_default() -> None:
    assert tracing_flags("") == []
    assert "--trace-config=opentelemetry,url=http://host:4318/v1/traces" in tracing_flags("http://host:4318/")
