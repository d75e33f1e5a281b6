"""The configuration and its text form are inverse of each other, through Triton's own protobuf."""

from __future__ import annotations

import sys
import typing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimaran.core.config_pbtxt import config_from_pbtxt, pbtxt_from_config
from trimaran.core.errors import RepositoryError, UnavailableError
from trimaran.core.model_config import (
    Accelerator,
    DataType,
    DynamicBatching,
    EnsembleStep,
    InstanceGroup,
    InstanceKind,
    ModelConfig,
    QueuePolicy,
    TensorConfig,
    Warmup,
    WarmupInput,
)
from trimaran.core.spec import Frozen


def built(model: type[Frozen], /, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """By our names of the fields: `st.builds` would add Triton's, which are aliases."""
    return st.fixed_dictionaries(fields).map(model.model_validate)


names = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=12)
counts = st.integers(0, 2**31 - 1)
types = st.sampled_from(typing.get_args(DataType))
dims = st.lists(st.integers(-1, 2**40).filter(bool), max_size=3).map(tuple)
tensors = built(TensorConfig, name=names, data_type=types, dims=dims, optional=st.booleans(), ragged=st.booleans())
outputs = built(TensorConfig, name=names, data_type=types, dims=dims)
warmup_inputs = built(WarmupInput, name=names, data_type=types, dims=dims, file=st.none() | names)
configs = built(
    ModelConfig,
    name=names,
    backend=st.just("") | names,
    platform=st.just("") | names,
    max_batch_size=counts,
    inputs=st.lists(tensors, max_size=3).map(tuple),
    outputs=st.lists(outputs, max_size=3).map(tuple),
    default_model_filename=st.just("") | names,
    instance_group=st.none()
    | built(
        InstanceGroup,
        count=counts,
        kind=st.sampled_from(typing.get_args(InstanceKind)),
        gpus=st.lists(counts, max_size=2).map(tuple),
        profiles=st.lists(names, max_size=2).map(tuple),
        spares=counts,
    ),
    warmups=st.lists(
        built(
            Warmup,
            name=names,
            batch_size=counts,
            count=counts,
            inputs=st.lists(warmup_inputs, max_size=3, unique_by=lambda item: item.name).map(tuple),
        ),
        max_size=2,
    ).map(tuple),
    response_cache=st.booleans(),
    accelerators=st.lists(
        built(Accelerator, name=names, parameters=st.dictionaries(names, names, max_size=2)), max_size=2
    ).map(tuple),
    parameters=st.dictionaries(names, names, max_size=3),
)


schedulings = st.fixed_dictionaries(
    {
        "dynamic_batching": st.none()
        | built(
            DynamicBatching,
            preferred_batch_sizes=st.lists(counts, max_size=3).map(tuple),
            max_queue_delay_us=counts,
            queue=st.none()
            | built(
                QueuePolicy,
                max_queue_size=counts,
                timeout_us=counts,
                timeout_action=st.sampled_from(("REJECT", "DELAY")),
                caller_may_shorten=st.booleans(),
            ),
            priority_levels=counts,
            default_priority=counts,
        )
    }
) | st.fixed_dictionaries(
    {
        "steps": st.lists(
            built(
                EnsembleStep,
                model=names,
                version=st.integers(-1, 9),
                inputs=st.dictionaries(names, names, max_size=2),
                outputs=st.dictionaries(names, names, max_size=2),
            ),
            max_size=2,
        ).map(tuple)
    }
)
policies = st.fixed_dictionaries({"latest_versions": st.integers(1, 9)}) | st.fixed_dictionaries(
    {"served_versions": st.lists(st.integers(1, 2**40), min_size=1, max_size=3).map(tuple)}
)


@given(configs, policies, schedulings)
@settings(max_examples=150, deadline=None)
def test_reading_what_was_written_gives_the_same_configuration(
    config: ModelConfig, policy: dict[str, object], scheduling: dict[str, object]
) -> None:
    config = ModelConfig.model_validate({**dict(config), **policy, **scheduling})
    assert config_from_pbtxt(pbtxt_from_config(config)) == config


def test_every_field_is_part_of_the_property() -> None:
    """A field that the strategies leave out would be unproven."""
    for kind in (
        ModelConfig,
        TensorConfig,
        QueuePolicy,
        DynamicBatching,
        InstanceGroup,
        Warmup,
        Accelerator,
        EnsembleStep,
    ):
        source = Path(__file__).read_text(encoding="utf-8")
        for name in kind.model_fields:
            assert f"{name}=" in source or f'"{name}"' in source, f"{kind.__name__}.{name}"


def test_text_that_is_no_configuration_is_refused_with_its_place() -> None:
    with pytest.raises(RepositoryError, match=r"cannot be read: 1:1.*lay-out"):
        config_from_pbtxt("nonsense: {")


def test_a_tensor_without_a_type_is_refused() -> None:
    with pytest.raises(RepositoryError, match="data_type"):
        config_from_pbtxt('name: "m" input { name: "A" }')


def test_a_configuration_from_elsewhere_is_read_for_what_we_use() -> None:
    config = config_from_pbtxt('name: "m" platform: "ensemble" max_batch_size: 8')
    assert (config.name, config.max_batch_size, config.instance_group) == ("m", 8, None)
    assert config.ensemble


def test_without_tritons_client_the_install_command_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tritonclient.grpc", None)
    with pytest.raises(UnavailableError, match="Triton's client") as told:
        config_from_pbtxt('name: "m"')
    assert "trimaran[gateway]" in told.value.hint
