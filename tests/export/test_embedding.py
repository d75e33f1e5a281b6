"""Embeddings equal those of sentence-transformers: every pooling, Dense, Normalize, cut and whitening."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import answers
from tests.export import zoo
from tests.export.exported import LONG, answering, exported
from tests.export.test_bad_input import edit_config
from trimaran.core.corpus import shipped_texts
from trimaran.core.errors import UsageError
from trimaran.core.spec import Pooling
from trimaran.export.locate import locate

TEXTS = ["A short one.", "今天天气很好，我们去公园吧。 🍕", "", *shipped_texts("judging")[:6]]
MODES = {
    "mean": "mean",
    "cls": "cls",
    "max": "max",
    "mean-sqrt-length": "mean_sqrt_len_tokens",
    "weighted-mean": "weightedmean",
    "last-token": "lasttoken",
}


def sentence_model(
    folder: Path, family: str, *, mode: str = "mean", dense: bool = False, normalize: bool = True, **changes: Any
) -> Any:
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Dense, Normalize, Pooling, Transformer

    zoo.saved_model(folder / "plain", family, "embedding", **changes)
    encoder = Transformer(str(folder / "plain"), max_seq_length=64)
    modules: list[Any] = [encoder, Pooling(32, pooling_mode=mode)]
    if dense:
        torch.manual_seed(3)
        modules.append(Dense(32, 24, activation_function=torch.nn.Tanh()))
    if normalize:
        modules.append(Normalize())
    model = SentenceTransformer(modules=modules, device="cpu")
    model.save(str(folder / "sentence"))
    return model


@pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta"])
@pytest.mark.parametrize("mode", MODES)
def test_a_sentence_transformers_folder_gives_its_own_embeddings(tmp_path: Path, family: str, mode: str) -> None:
    model = sentence_model(tmp_path, family, mode=MODES[mode], dense=mode == "mean", normalize=mode != "max")
    ref = locate(str(tmp_path / "sentence"))
    assert ref.pooling is not None
    assert ref.pooling.mode == mode
    graph = exported(ref, tmp_path, profile=LONG)
    found = np.stack(answers.embeddings(answering(graph), TEXTS))
    np.testing.assert_allclose(found, model.encode(TEXTS), atol=1e-5)


def test_matryoshka_cut_is_that_of_sentence_transformers(tmp_path: Path) -> None:
    model = sentence_model(tmp_path, "bert")
    ref = locate(str(tmp_path / "sentence"), pooling_changes={"dimensions": 12})
    graph = exported(ref, tmp_path, profile=LONG)
    found = np.stack(answers.embeddings(answering(graph), TEXTS))
    assert found.shape[1] == 12
    np.testing.assert_allclose(found, model.encode(TEXTS, truncate_dim=12, normalize_embeddings=True), atol=1e-5)


@pytest.mark.parametrize("layers", [(-2,), (0,), (-1, -2, 1)])
@pytest.mark.parametrize("family", ["bert", "xlnet", "t5"])
def test_any_layer_or_the_mean_of_several(tmp_path: Path, family: str, layers: tuple[int, ...]) -> None:
    import torch
    import transformers

    folder = zoo.saved_model(tmp_path / "model", family, "embedding")
    pooling = Pooling(layers=layers, normalize=False)
    graph = exported(locate(str(folder), task_name="embedding", pooling=pooling), tmp_path, profile=LONG)
    served = answering(graph)
    name = "T5EncoderModel" if family == "t5" else "AutoModel"
    model = getattr(transformers, name).from_pretrained(folder).eval()
    for text in TEXTS[:3]:
        inputs = {
            key: torch.from_numpy(value) for key, value in served.encoder.batch(served.encoder.rows([text])).items()
        }
        with torch.inference_mode():
            states = model(**inputs, output_hidden_states=True).hidden_states
        wanted = torch.stack([states[layer] for layer in layers]).mean(0).mean(1)[0].numpy()
        np.testing.assert_allclose(answers.embeddings(served, [text])[0], wanted, atol=1e-5)


def test_a_layer_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    folder = zoo.saved_model(tmp_path / "model", "bert", "embedding")
    with pytest.raises(UsageError, match="There is no layer -9: the model has 2"):
        locate(str(folder), pooling_changes={"layers": (-9,)})


def test_more_dimensions_than_there_are_are_refused(tmp_path: Path) -> None:
    folder = zoo.saved_model(tmp_path / "model", "bert", "embedding")
    with pytest.raises(UsageError, match="32 numbers cannot be cut to 64"):
        locate(str(folder), pooling_changes={"dimensions": 64})


def test_a_module_of_the_folders_own_code_is_refused_though_the_library_has_one_of_its_name(tmp_path: Path) -> None:
    sentence_model(tmp_path, "bert")
    path = tmp_path / "sentence" / "modules.json"
    modules = json.loads(path.read_text())
    path.write_text(json.dumps([{**modules[0], "type": "custom_st.Transformer"}, *modules[1:]]))
    with pytest.raises(UsageError, match=r"code of its own \(custom_st.Transformer in modules.json\)") as refused:
        locate(str(tmp_path / "sentence"))
    assert "sentence_transformers.models.Transformer" in (refused.value.hint or "")


def test_two_poolings_at_once_are_refused(tmp_path: Path) -> None:
    sentence_model(tmp_path, "bert")
    config = next((tmp_path / "sentence").glob("1_Pooling/config.json"))
    config.write_text(json.dumps({"embedding_dimension": 32, "pooling_mode": ["cls", "mean"]}))
    with pytest.raises(UsageError, match="pools by cls and mean"):
        locate(str(tmp_path / "sentence"))


@pytest.mark.parametrize(
    ("config", "mode"),
    [
        ({"architectures": ["Qwen3ForCausalLM"]}, "last-token"),
        ({"architectures": ["Qwen3ForCausalLM"], "is_causal": False}, "mean"),
        ({"architectures": ["Qwen3Model"]}, "mean"),
        ({}, "mean"),
    ],
)
def test_a_plain_folder_is_pooled_as_sentence_transformers_pools_it(
    tmp_path: Path, config: dict[str, Any], mode: str
) -> None:
    import sentence_transformers

    folder = zoo.saved_model(tmp_path / "model", "qwen3", "embedding")
    edit_config(folder, **config)
    ref = locate(str(folder), task_name="embedding")
    assert ref.pooling is not None
    assert ref.pooling.mode == mode
    theirs = sentence_transformers.SentenceTransformer(str(folder), device="cpu")[1].pooling_mode
    assert theirs == {"last-token": "lasttoken"}.get(mode, mode)


def test_hidden_states_and_attentions_are_outputs_when_asked(tmp_path: Path) -> None:
    folder = zoo.saved_model(tmp_path / "model", "bert", "embedding")
    ref = locate(str(folder), task_name="feature-extraction", extras=("attentions", "hidden_states"))
    graph = exported(ref, tmp_path, profile=LONG)
    assert graph.signature.output_names == ("token_embeddings", "hidden_states", "attentions")
    served = answering(graph)
    rows = served.encoder.rows(TEXTS)
    outputs = served.outputs(rows)
    for index, row in enumerate(rows):
        size = len(row.ids)
        attention = outputs["attentions"][index][:, :, :size, :size]
        np.testing.assert_allclose(attention.sum(-1), 1.0, atol=1e-5)
        last = outputs["hidden_states"][index][-1, :size]
        np.testing.assert_allclose(last, outputs["token_embeddings"][index][:size], atol=1e-6)
