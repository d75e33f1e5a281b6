"""Real builds by tensorrt_rtx, which needs no GPU: the same builder code that plain TensorRT runs on one."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.export.zoo import saved_model, tokenizer_of, wordpiece_vocabulary
from tests.quantize.tensorrt.engines import CALIBRATION, CAPABILITIES, PROFILE, QUIET, TASKS, World
from trimaran.core import backends
from trimaran.core.artifact import Artifact, load_artifact
from trimaran.core.errors import UnavailableError, UsageError
from trimaran.core.spec import Range, ShapeProfile, profile_shapes
from trimaran.export.locate import locate
from trimaran.export.reference import reference
from trimaran.export.to_onnx import export
from trimaran.quantize.candidates import candidate
from trimaran.quantize.settings import MakerSettings
from trimaran.quantize.stage import to_precision
from trimaran.quantize.tensorrt.engine import _watching, build_engine, short_and_long
from trimaran.quantize.tensorrt.engine_process import EngineOptions

pytestmark = pytest.mark.usefixtures("rtx")
# By hand: six linear layers a transformer layer, two layers each, and ALBERT's projection of its embeddings.
LINEAR = {"bert": 12, "roberta": 12, "distilbert": 12, "albert": 13}


def observed(artifact: Artifact) -> dict[str, Any]:
    return {check.name: check.observed for check in artifact.checks}


@pytest.mark.parametrize("family", TASKS)
def test_fp16_engine_runs_every_product_in_half_and_attention_as_one_kernel(world: World, family: str) -> None:
    engine = world.engine(family, "onnx-fp16")
    assert observed(engine) == {"linear products in Half": LINEAR[family], "attentions in one Half kernel": 2}
    assert engine.format == "tensorrt" and engine.backend == "tensorrt_rtx" and engine.precision == "fp16"


@pytest.mark.parametrize("family", TASKS)
def test_int8_engine_runs_every_product_in_int8(world: World, family: str) -> None:
    engine = world.engine(family, "onnx-int8-qdq")
    assert observed(engine) == {"linear products in Int8": LINEAR[family], "attentions in one Half kernel": 2}


def test_int8_attention_is_one_int8_kernel(world: World) -> None:
    engine = world.engine("bert", "onnx-int8-qdq-attention")
    assert observed(engine) == {"linear products in Int8": 12, "attentions in one Int8 kernel": 2}


def test_full_int8_and_bf16_build_too(world: World) -> None:
    assert observed(world.engine("bert", "onnx-int8-qdq-full"))["attentions in one Int8 kernel"] == 2
    assert observed(world.engine("bert", "onnx-bf16"))["linear products in BFloat16"] == 12


@pytest.mark.parametrize("capability", ["7.5", "8.0", "12.1"])
def test_other_compute_capabilities_build_alone(world: World, capability: str) -> None:
    engine = world.build(world.graph("bert", "onnx-int8-qdq"), compute_capabilities=(capability,))
    assert list(engine.details["engine"]["identity"]["compute_capabilities"]) == [capability]
    assert observed(engine)["linear products in Int8"] == 12


def test_manifest_names_the_machine_and_the_log_is_kept(world: World) -> None:
    engine = load_artifact(world.engine("bert", "onnx-fp16").directory)
    facts = engine.details["engine"]
    assert facts["identity"]["runtime"] == "tensorrt_rtx"
    assert facts["identity"]["compute_capabilities"] == list(CAPABILITIES)
    assert facts["identity"]["version"].startswith("1.")
    assert facts["identity"]["cuda"] is None, "no driver took part in this build"
    assert "Layers:" in Path(facts["log"]).read_text(encoding="utf-8")
    assert json.loads((engine.directory / "layers.json").read_text(encoding="utf-8"))[0].startswith("Layers:")
    assert engine.engine_options["padding"]["attention_mask"] == 0
    assert engine.profile == PROFILE


def test_an_int8_plan_carries_the_identity_of_the_others(world: World) -> None:
    int8, half = (world.engine("bert", name).engine_options for name in ("onnx-int8-qdq", "onnx-fp16"))
    assert int8["identity"] == half["identity"] and int8["identity"]["runtime"] == "tensorrt_rtx"


def test_same_build_is_not_made_twice(world: World) -> None:
    first = world.engine("bert", "onnx-fp16")
    assert world.build(world.graph("bert", "onnx-fp16")).files == first.files


def test_short_and_long_profiles_in_one_engine(world: World, tmp_path: Path) -> None:
    parent = world.graph("bert", "onnx-fp16")
    cache = tmp_path / "timing.cache"
    engine = world.build(
        parent,
        arguments={"profiles": short_and_long(parent.profile, split=16), "timing_cache": cache},
        weight_streaming=True,
        workspace_bytes=1 << 28,
        compute_capabilities=("8.9",),
    )
    ranges = [row["sequence"]["maximum"] for row in engine.details["engine"]["profiles"]]
    assert ranges == [16, 48]
    assert engine.profile.sequence == Range(minimum=1, typical=17, maximum=48)
    assert cache.is_file()
    table = json.loads((engine.directory / "layers.json").read_text(encoding="utf-8"))[0]
    assert "MaxShape: [4,16]" in table and "MaxShape: [4,48]" in table


def test_progress_comes_from_the_child(world: World) -> None:
    told: list[str] = []

    class Step:
        def advance(self, done: int, total: int, what: str = "") -> None:
            told.append(what)

        def outcome(self, text: str) -> None:
            pass

    path = world.root / "told.progress"
    with _watching(path, Step()):
        path.write_text('["Building", 1, 4]\n', encoding="utf-8")
        for _ in range(100):
            if told:
                break
            time.sleep(0.05)
    assert told[0] == "Building"


def test_shapes_come_from_the_one_profile(world: World) -> None:
    shapes = profile_shapes(world.exported("bert").signature, PROFILE)
    assert shapes["attention_mask"] == [[1, 1], [2, 16], [4, 48]]
    assert set(shapes) == {"input_ids", "attention_mask", "token_type_ids"}


def test_a_split_outside_the_profile_is_refused() -> None:
    with pytest.raises(UsageError, match="found 48"):
        short_and_long(PROFILE, split=48)


def test_a_gap_between_profiles_is_refused(world: World) -> None:
    low = PROFILE.model_copy(update={"sequence": Range(minimum=1, typical=4, maximum=8)})
    high = PROFILE.model_copy(update={"sequence": Range(minimum=20, typical=32, maximum=48)})
    with pytest.raises(UsageError, match="leave no gap"):
        world.build(world.graph("bert", "onnx-fp16"), arguments={"profiles": (low, high)})


def test_no_gpu_and_no_capability_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimaran.quantize.tensorrt.engine.driver_present", lambda: False)
    with pytest.raises(UsageError, match=r"--compute-capability 8\.6,8\.9,12\.0"):
        world.build(world.graph("bert", "onnx-fp16"), compute_capabilities=())


def test_hardware_compatibility_is_not_promised_where_it_is_not_given(world: World) -> None:
    with pytest.raises(UsageError, match="hardware compatibility is plain tensorrt's"):
        world.build(world.graph("bert", "onnx-fp16"), hardware_compatible="AMPERE_PLUS")


def test_plain_tensorrt_without_a_driver_says_what_to_install(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimaran.quantize.tensorrt.engine.installed_version", lambda runtime: "11.4.0.106")
    monkeypatch.setattr("trimaran.quantize.tensorrt.engine.driver_present", lambda: False)
    with pytest.raises(UnavailableError, match=r"no libcuda.so.1.*Install the NVIDIA driver"):
        build_engine(world.graph("bert", "onnx-fp16"), runtime="tensorrt", store=world.store, progress=QUIET)


def test_plain_tensorrt_takes_no_compute_capability(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimaran.quantize.tensorrt.engine.installed_version", lambda runtime: "11.4.0.106")
    monkeypatch.setattr("trimaran.quantize.tensorrt.engine.driver_present", lambda: True)
    options = EngineOptions(compute_capabilities=("8.6",))
    with pytest.raises(UsageError, match="it takes no compute capability"):
        build_engine(world.exported("bert"), options, runtime="tensorrt", store=world.store, progress=QUIET)


def test_a_missing_runtime_says_what_to_install(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimaran.quantize.tensorrt.engine.installed_version", lambda runtime: None)
    with pytest.raises(UnavailableError, match=r"pip install 'trimaran\[gpu\]'"):
        build_engine(world.graph("bert", "onnx-fp16"), runtime="tensorrt", store=world.store, progress=QUIET)


def test_an_engine_opened_without_a_driver_is_unavailable_and_no_crash(world: World) -> None:
    if backends.driver_present():
        pytest.skip("this machine has a driver")
    with pytest.raises(UnavailableError, match="no NVIDIA driver"):
        with backends.open_session(world.engine("bert", "onnx-fp16"), threads=1):
            pass


@pytest.fixture(scope="module")
def bert_base(world: World) -> Artifact:
    """Of the real size, vocabulary included, with random weights."""
    sizes = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
    folder = saved_model(
        world.root / "base", "bert", "embedding", vocab_size=30522, max_position_embeddings=512, **sizes
    )
    tokenizer = tokenizer_of("wordpiece")
    words = [f"unused{index}" for index in range(30522 - len(tokenizer))]
    vocabulary = {**wordpiece_vocabulary(), **{word: len(tokenizer) + index for index, word in enumerate(words)}}
    type(tokenizer)(vocab=vocabulary, do_lower_case=True).save_pretrained(folder)
    lone = Range(minimum=1, typical=1, maximum=1)
    profile = ShapeProfile(batch=lone, sequence=Range(minimum=1, typical=16, maximum=32))
    eager = reference(locate(str(folder), task_name="embedding"), profile, store=world.store, progress=QUIET)
    return export(eager, store=world.store, progress=QUIET)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind", "limit_bytes"), [("onnx-fp16", "Half", 2.4e8), ("onnx-int8-qdq", "Int8", 1.6e8)]
)
def test_bert_base_builds(world: World, bert_base: Artifact, name: str, kind: str, limit_bytes: float) -> None:
    settings = MakerSettings(calibration=CALIBRATION[:16])
    graph = to_precision(bert_base, candidate(name), settings, store=world.store, progress=QUIET)
    # Two are enough to see that their plans share the weights; each further one takes the builder ten seconds.
    engine = world.build(graph, compute_capabilities=("8.6", "12.0"))
    found = observed(engine)
    assert found[f"linear products in {kind}"] == 72
    assert found["attentions in one Half kernel"] == 12
    assert engine.size_bytes < limit_bytes
