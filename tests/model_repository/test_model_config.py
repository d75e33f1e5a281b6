"""The configuration and its text form are inverse of each other, through Triton's own protobuf."""

from __future__ import annotations

import typing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimaran.errors import RepositoryError
from trimaran.model_repository.model_config import (
    DataType,
    DynamicBatching,
    InstanceGroup,
    ModelConfig,
    QueuePolicy,
    Tensor,
    Warmup,
    WarmupInput,
    config_from_pbtxt,
    pbtxt_from_config,
)

names = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=12)
counts = st.integers(0, 2**31 - 1)
types = st.sampled_from(typing.get_args(DataType))
dims = st.lists(st.integers(-1, 2**40).filter(bool), max_size=3).map(tuple)
tensors = st.builds(Tensor, name=names, data_type=types, dims=dims, optional=st.booleans())
outputs = st.builds(Tensor, name=names, data_type=types, dims=dims)
warmup_inputs = st.builds(WarmupInput, name=names, data_type=types, dims=dims, file=st.none() | names)
configs = st.builds(
    ModelConfig,
    name=names,
    backend=names,
    max_batch_size=counts,
    inputs=st.lists(tensors, max_size=3).map(tuple),
    outputs=st.lists(outputs, max_size=3).map(tuple),
    default_model_filename=st.just("") | names,
    instance_group=st.builds(
        InstanceGroup, count=counts, kind=st.sampled_from(("KIND_AUTO", "KIND_GPU", "KIND_CPU", "KIND_MODEL"))
    ),
    dynamic_batching=st.none()
    | st.builds(
        DynamicBatching,
        preferred_batch_sizes=st.lists(counts, max_size=3).map(tuple),
        max_queue_delay_us=counts,
        queue=st.none()
        | st.builds(
            QueuePolicy, max_queue_size=counts, timeout_us=counts, timeout_action=st.sampled_from(("REJECT", "DELAY"))
        ),
    ),
    warmups=st.lists(
        st.builds(
            Warmup,
            name=names,
            batch_size=counts,
            count=counts,
            inputs=st.lists(warmup_inputs, max_size=3, unique_by=lambda item: item.name).map(tuple),
        ),
        max_size=2,
    ).map(tuple),
    latest_versions=st.integers(1, 9),
    response_cache=st.booleans(),
    parameters=st.dictionaries(names, names, max_size=3),
)


@given(configs)
@settings(max_examples=150, deadline=None)
def test_reading_what_was_written_gives_the_same_configuration(config: ModelConfig) -> None:
    assert config_from_pbtxt(pbtxt_from_config(config)) == config


def test_text_that_is_no_configuration_is_refused_with_its_place() -> None:
    with pytest.raises(RepositoryError, match=r"cannot be read: 1:1.*lay-out"):
        config_from_pbtxt("nonsense: {")


def test_a_tensor_without_a_type_is_refused() -> None:
    with pytest.raises(RepositoryError, match="data_type"):
        config_from_pbtxt('name: "m" input { name: "A" }')


def test_a_configuration_from_elsewhere_is_read_for_what_we_use() -> None:
    config = config_from_pbtxt('name: "m" platform: "ensemble" max_batch_size: 8')
    assert (config.name, config.max_batch_size, config.instance_group.kind) == ("m", 8, "KIND_AUTO")
