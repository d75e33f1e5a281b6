from __future__ import annotations

from pathlib import Path

import pytest

from trimaran.core.config import deploy_config, gates_from_flags
from trimaran.core.errors import UsageError
from trimaran.core.tasks import gates_for


def test_flags_win_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "deploy.toml"
    file.write_text('model = "a"\nfidelity = "balanced"\nsequence = [1, 64, 128]\n[gates]\nneighbour_overlap = 0.9\n')
    config = deploy_config({"model": "b", "threads": None}, file=file)
    assert (config.model, config.fidelity, config.sequence and config.sequence.maximum) == ("b", "balanced", 128)
    assert config.gates == {"neighbour_overlap": 0.9}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('fidelty = "strict"', "Did you mean 'fidelity'?"),
        ("model = ", "is not TOML"),
        ('model = "a"\nsequence = [9, 1, 2]', "minimum <= typical <= maximum"),
        ('model = "a"\nfidelity = "loose"', "The setting fidelity is not right"),
        ('model = "a"\nthreads = 0', "The setting threads is not right"),
        ('model = "a"\nname = "../x"', "The setting name is not right"),
        ('task = "auto"', "No model was named"),
    ],
)
def test_a_wrong_file_is_refused_with_what_is_wrong(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "deploy.toml"
    file.write_text(text)
    with pytest.raises(UsageError) as caught:
        deploy_config({}, file=file)
    assert words in str(caught.value)


def test_a_missing_file_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        deploy_config({}, file=tmp_path / "none.toml")


def test_single_gates_can_be_replaced() -> None:
    gates = gates_for("embedding", "strict", gates_from_flags(["neighbour_overlap=0.9"]))
    assert {gate.metric: gate.limit for gate in gates}["neighbour_overlap"] == 0.9
    with pytest.raises(UsageError, match="No gate 'overlap'"):
        gates_for("embedding", "strict", {"overlap": 1.0})
    with pytest.raises(UsageError, match="METRIC=NUMBER"):
        gates_from_flags(["neighbour_overlap"])
