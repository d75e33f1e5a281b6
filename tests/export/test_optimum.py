"""Folders go both ways between trimaran and optimum, each library in the environment that it wants."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trimaran
from tests.environments import ROOT, python_of, run_in
from tests.export import zoo
from tests.export.exported import QUIET, exported_family
from tests.instruction_set import FOUND
from trimaran.core.artifact import Artifact
from trimaran.core.errors import UsageError
from trimaran.core.store import Store
from trimaran.export.torch_engine import TorchEngine
from trimaran.pipeline.exporting import open_graph
from trimaran.pipeline.plain_folder import write_optimum_folder
from trimaran.quantize.candidates import candidate
from trimaran.quantize.settings import MakerSettings
from trimaran.quantize.stage import to_precision

TEXTS = ["Angela Merkel visited Paris in 2015, didn't she?", "I love pizza."]
SCRIPT = ROOT / "tests" / "environments" / "in_optimum.py"
# What optimum calls the outputs that ours are compared with.
ANSWERS = {
    "text-classification": ("logits",),
    "token-classification": ("logits",),
    "question-answering": ("start_logits", "end_logits"),
    "embedding": ("last_hidden_state",),
}


def asked(environment: str, kind: str, requests: Sequence[dict[str, Any]], **variables: str) -> list[dict[str, Any]]:
    return list(json.loads(run_in(environment, SCRIPT, kind, json.dumps(requests), **variables).splitlines()[-1]))


def wanted(artifact: Artifact, mask: Any) -> list[np.ndarray]:
    """What the same graph answers here, in the order of `ANSWERS`; of an embedding model, its pooled vectors."""
    from tokenizers import Tokenizer

    from trimaran.core.backends import open_session

    tokenizer = Tokenizer.from_file(str(artifact.directory / "tokenizer.json"))
    rows = [tokenizer.encode(text) for text in TEXTS]
    width = len(mask[0])
    ids = np.array([row.ids[:width] + [0] * (width - len(row.ids)) for row in rows], np.int64)
    inputs = {"input_ids": ids, "attention_mask": np.array(mask, np.int64), "token_type_ids": np.zeros_like(ids)}
    with open_session(artifact, threads=1) as session:
        outputs = session.infer({name: inputs[name] for name in artifact.signature.input_names})
    return [outputs[name] for name in artifact.signature.output_names]


def pooled(states: Any, mask: Any) -> np.ndarray:
    """The mean of the token vectors, in unit length, as a plain BERT folder is embedded."""
    weights = np.array(mask, np.float32)[..., None]
    vectors = (np.array(states, np.float32) * weights).sum(1)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def assert_same(artifact: Artifact, answer: dict[str, Any]) -> None:
    mask = np.array(answer["attention_mask"])
    for name, ours in zip(ANSWERS[artifact.task], wanted(artifact, answer["attention_mask"]), strict=True):
        theirs = np.array(answer[name], np.float32)
        if artifact.task == "embedding":
            theirs = pooled(theirs, mask)
        elif theirs.ndim > 1 and theirs.shape[1] == mask.shape[1]:
            theirs = np.where(mask.reshape(*mask.shape, *[1] * (theirs.ndim - 2)) == 1, theirs, ours)
        np.testing.assert_allclose(theirs, ours, atol=2e-5)


@pytest.mark.slow
def test_optimum_opens_what_was_written_for_it(tmp_path: Path) -> None:
    python_of("optimum-onnx")
    artifacts = {task: exported_family(tmp_path / task, "bert", task) for task in ANSWERS}
    requests = [
        {
            "task": task,
            "texts": TEXTS,
            "folder": str(
                write_optimum_folder(artifact, tmp_path / task / "out", store=Store(tmp_path / task / "store"))
            ),
        }
        for task, artifact in artifacts.items()
    ]
    for answer, artifact in zip(asked("optimum-onnx", "onnx", requests), artifacts.values(), strict=True):
        assert_same(artifact, answer)


@pytest.mark.slow
def test_optimum_opens_the_openvino_candidates(tmp_path: Path) -> None:
    python_of("optimum-intel")
    artifacts, requests = [], []
    for task in ("text-classification", "embedding"):
        store = Store(tmp_path / task / "store")
        graph = exported_family(tmp_path / task, "bert", task)
        for name in ("openvino-fp32", "openvino-int8-weights"):
            artifact = to_precision(graph, candidate(name), MakerSettings(threads=1), store=store, progress=QUIET)
            folder = write_optimum_folder(artifact, tmp_path / task / name, store=store)
            requests.append({"task": task, "texts": TEXTS, "folder": str(folder)})
            artifacts.append(artifact)
    # The instructions that really run here: optimum knows nothing of those that a CPU only advertises.
    restriction = json.loads(os.environ.get(FOUND, "{}"))
    for answer, artifact in zip(asked("optimum-intel", "openvino", requests, **restriction), artifacts, strict=True):
        if artifact.precision == "fp32":
            assert_same(artifact, answer)
        else:
            assert set(ANSWERS[artifact.task]) < set(answer)


@pytest.mark.slow
def test_what_optimum_exported_answers_as_the_trained_model(tmp_path: Path) -> None:
    python_of("optimum-onnx")
    requests = []
    for task in ANSWERS:
        model = zoo.saved_model(tmp_path / task, "bert", task)
        if task == "embedding":
            from sentence_transformers import SentenceTransformer

            SentenceTransformer(str(model), device="cpu").save(str(tmp_path / "st"))
            model = tmp_path / "st"
        requests.append({"folder": str(model), "task": task, "export_to": str(tmp_path / f"{task}-onnx")})
    asked("optimum-onnx", "onnx", requests)
    store = Store(tmp_path / "store")
    for request in requests:
        adopted = open_graph(request["export_to"], store=store, progress=QUIET)
        assert adopted.task == request["task"]
        trained = open_graph_of_weights(request["folder"], request["task"], tmp_path / f"{request['task']}-weights")
        sample = {
            name: np.array([[2, 17, 33, 3], [2, 40, 3, 0]] if name == "input_ids" else [[1] * 4, [1, 1, 1, 0]])
            for name in trained.signature.input_names
        }
        if "token_type_ids" in sample:
            sample["token_type_ids"] = np.zeros_like(sample["input_ids"])
        eager = TorchEngine(str(trained.entry_path), threads=1, options=trained.engine_options)
        with_graph = trimaran.load(adopted.directory, store=store.root)
        expected = eager.infer(sample)
        with with_graph as model:
            found = model._opened().answering.infer({name: sample[name] for name in adopted.signature.input_names})
        real = sample["attention_mask"] == 1
        for name, ours in found.items():
            rows = real if ours.ndim > 1 and ours.shape[1] == 4 else slice(None)
            np.testing.assert_allclose(ours[rows], expected[name][rows], atol=1e-5)


def open_graph_of_weights(folder: str, task: str, root: Path) -> Artifact:
    from tests.export.exported import reference_of
    from trimaran.export.locate import locate

    return reference_of(locate(folder, task_name=task), root)


def test_a_task_without_a_class_of_optimum_is_refused(tmp_path: Path) -> None:
    artifact = exported_family(tmp_path, "bert", "fill-mask")
    with pytest.raises(UsageError, match="Optimum does not open fill-mask"):
        write_optimum_folder(artifact, tmp_path / "out", store=Store(tmp_path / "store"))
    assert not (tmp_path / "out").exists()
