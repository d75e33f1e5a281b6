"""Every task of the table, from strings to final answers, through the real Triton and a plain tritonclient."""

from __future__ import annotations

import importlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.commands import trimaran_here, trimaran_json_here
from tests.serving.triton.every_task import LABELS, QUESTIONS, Question, in_process
from trimaran.core.artifact import Artifact
from trimaran.core.digests import list_digests
from trimaran.core.errors import QualityError, UsageError
from trimaran.core.tasks import TASKS, gates_for
from trimaran.judging.golden import GOLDEN_FILE, Golden, GoldenTensor, golden_rows, make_golden, tensors_to_json
from trimaran.pipeline.plan import texts_for
from trimaran.runtime.wire import OPTIONS
from trimaran.serving.client import Client
from trimaran.serving.triton.golden_check import verify_all
from trimaran.serving.triton.server import Server
from trimaran.serving.triton.verify import require_faithful, verify

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def world(
    tmp_path_factory: pytest.TempPathFactory, every_task_world: tuple[Path, dict[str, Artifact]]
) -> tuple[Path, dict[str, Artifact]]:
    """A copy of the served repository, into which golden bundles are written."""
    repository, artifacts = every_task_world
    return shutil.copytree(repository, tmp_path_factory.mktemp("tasks") / "repository"), artifacts


@pytest.fixture(scope="module")
def server(every_task_server: Server) -> Server:
    return every_task_server


def plainly(server: Server, name: str, question: Question, protocol: str = "grpc") -> dict[str, Any]:
    """What a caller with tritonclient alone would write."""
    library = importlib.import_module(f"tritonclient.{protocol}")
    columns = {key: [row[key] for row in question.rows] for key in question.rows[0]}
    if question.options:
        columns[OPTIONS] = [json.dumps(question.options)] * len(question.rows)
    inputs = []
    for key, column in columns.items():
        rows = [[entry.encode() for entry in ([row] if isinstance(row, str) else row)] for row in column]
        data = np.array(rows, dtype=np.object_)
        entry = library.InferInput(key, data.shape, "BYTES")
        entry.set_data_from_numpy(data)
        inputs.append(entry)
    url = server.grpc_url if protocol == "grpc" else server.http_url
    with library.InferenceServerClient(url) as client:
        result = client.infer(name, inputs)
        arrays = {output.name: result.as_numpy(output.name) for output in TASKS[name].served.outputs}
        return {output: array for output, array in arrays.items() if array is not None}


def same(found: Any, wanted: Any) -> None:
    assert found.shape == wanted.shape
    if wanted.dtype != np.object_:
        np.testing.assert_allclose(found, wanted, atol=1e-5)
        return
    for mine, theirs in zip(found.ravel(), wanted.ravel(), strict=True):
        if theirs[:1] not in (b"[", b"{") or theirs in (b"[PAD]", b"[UNK]", b"[CLS]", b"[SEP]", b"[MASK]", b"["):
            assert mine == theirs
            continue
        assert_alike(json.loads(mine), json.loads(theirs))


def assert_alike(mine: Any, theirs: Any) -> None:
    if isinstance(theirs, dict):
        assert list(mine) == list(theirs)
        mine, theirs = list(mine.values()), list(theirs.values())
    if isinstance(theirs, list):
        assert len(mine) == len(theirs)
        for one, other in zip(mine, theirs, strict=True):
            assert_alike(one, other)
    else:
        assert mine == (pytest.approx(theirs, abs=1e-5) if isinstance(theirs, float) else theirs)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_strings_in_and_final_answers_out(
    server: Server, world: tuple[Path, dict[str, Artifact]], task: str, protocol: str
) -> None:
    for question in QUESTIONS[task]:
        found = plainly(server, task, question, protocol)
        wanted = in_process(world[1][task], question)
        assert set(found) == set(wanted)
        for name in wanted:
            same(found[name], wanted[name])


def test_only_what_is_called_is_in_memory(server: Server) -> None:
    assert set(server.models) == set(TASKS)


def test_requests_of_unlike_sizes_and_options_at_once_keep_their_own_answers(
    server: Server, world: tuple[Path, dict[str, Artifact]]
) -> None:
    from concurrent.futures import ThreadPoolExecutor

    questions = [
        Question(({"QUERY": "weather", "DOCUMENTS": ["a", "rainy day", "x y z"][: 1 + n % 3]},), {"top_k": 1 + n % 2})
        for n in range(24)
    ]
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda question: plainly(server, "rerank", question), questions))
    for question, found in zip(questions, answers, strict=True):
        wanted = in_process(world[1]["rerank"], question._replace(keywords=question.options))
        for name in wanted:
            same(found[name], wanted[name])


BAD: list[tuple[str, Question, str]] = [
    ("rerank", Question(({"QUERY": "a", "DOCUMENTS": ["b"]},), {"top_q": 1}), "Unknown option 'top_q'.*Known: top_k"),
    ("rerank", Question(({"QUERY": "a", "DOCUMENTS": ["b"]},), {"top_k": "1"}), "top_k wants a number"),
    ("rerank", Question(({"QUERY": "a", "DOCUMENTS": ["b"] * 1025},)), "more than 1024"),
    ("token-classification", Question(({"TEXT": "a"},), {"aggregation": "sum"}), "Unknown aggregation 'sum'"),
    ("question-answering", Question(({"QUESTION": "why " * 100, "CONTEXT": "b"},)), "no room for a context"),
    (
        "zero-shot-classification",
        Question(({"TEXT": "a", "CANDIDATE_LABELS": LABELS},), {"template": "always"}),
        "a template with",
    ),
]


@pytest.mark.parametrize(("task", "question", "words"), BAD, ids=[words for *_, words in BAD])
def test_what_a_request_got_wrong_is_a_sentence_and_hurts_no_other(
    server: Server, task: str, question: Question, words: str
) -> None:
    from concurrent.futures import ThreadPoolExecutor

    from tritonclient.utils import InferenceServerException

    good = QUESTIONS[task][0]
    with ThreadPoolExecutor(4) as pool:
        others = [pool.submit(plainly, server, task, good) for _ in range(4)]
        with pytest.raises(InferenceServerException, match=words) as caught:
            plainly(server, task, question)
    assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"
    for other in others:
        assert other.result()


def test_options_that_are_no_json_are_refused(server: Server) -> None:
    from tritonclient.utils import InferenceServerException

    for text in ("{", "[" * 100_000, "[1]"):
        rows = ({"TEXT": "a", OPTIONS: text},)
        with pytest.raises(InferenceServerException, match=r"OPTIONS (is not JSON|wants a JSON object)"):
            plainly(server, "token-classification", Question(rows))


def test_a_model_says_what_it_is(server: Server) -> None:
    import tritonclient.http as triton

    with triton.InferenceServerClient(server.http_url) as client:
        parameters = client.get_model_config("fill-mask")["parameters"]
    found = {name: value["string_value"] for name, value in parameters.items()}
    assert (found["task"], found["wire"], found["mask_token"]) == ("fill-mask", "1", "[MASK]")


def bundle_of(artifact: Artifact) -> Golden:
    """Golden requests, with the graph's own answers in process standing for eager's."""
    texts = texts_for(artifact.task, "judging", None)
    rows = golden_rows(artifact.task, texts[:40], {"mask_token": "[MASK]"})[:12]
    keywords = {keyword: rows[0][name] for name, keyword in TASKS[artifact.task].served.keywords.items()}
    tensors = dict(in_process(artifact, Question(rows, keywords=keywords)))
    for large in ("HIDDEN_STATES", "ATTENTIONS"):
        tensors.pop(large, None)
    return make_golden(
        task=artifact.task,
        model="tiny",
        reference="in process",
        numbers=artifact.signature.outputs[0].name,
        rows=rows,
        wanted=tensors,
        proven=tensors,
        gates=gates_for(artifact.task, "exact", {}),
    )


@pytest.fixture(scope="module")
def bundles(world: tuple[Path, dict[str, Artifact]]) -> dict[str, Golden]:
    """Written into the repository, where a deploy puts them."""
    found = {task: bundle_of(artifact) for task, artifact in world[1].items()}
    for task, golden in found.items():
        (world[0] / task / "1" / GOLDEN_FILE).write_text(golden.to_json())
        list_digests(world[0] / task / "1", model=task, version=1)
    return found


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_a_faithful_endpoint_keeps_every_limit_of_its_bundles(
    server: Server, world: tuple[Path, dict[str, Artifact]], bundles: dict[str, Golden], protocol: str
) -> None:
    url = server.grpc_url if protocol == "grpc" else server.http_url
    with Client(url, protocol=protocol) as client:  # type: ignore[arg-type]
        found = verify_all(client, world[0], None)
    assert {one.name for one in found} == set(TASKS)
    for one in found:
        gates = {gate.metric for gate in gates_for(one.name, "exact", {})}
        assert {check.name for check in one.checks} >= gates - {"mean_probability_change"}
        assert one.holds, one


@pytest.mark.parametrize("task", TASKS)
def test_an_endpoint_that_drifted_is_caught_by_the_tasks_metric(
    server: Server, bundles: dict[str, Golden], task: str
) -> None:
    """The bundle's requests are kept and its answers moved by a row: every one is another text's."""
    golden = bundles[task]
    moved = {name: np.roll(array, 1, axis=0) for name, array in golden.tensors.items()}
    if "LABELS" in moved:
        # A random head says much the same of every text.
        moved["LABELS"] = moved["LABELS"][:, ::-1]
    other = golden.model_copy(update={"answers": json_tensors(moved)})
    with Client(server.grpc_url) as client, pytest.raises(QualityError, match=f"As served, {task} is not what was"):
        require_faithful(verify(client, task, other))


def json_tensors(tensors: dict[str, Any]) -> tuple[GoldenTensor, ...]:
    return tuple(GoldenTensor.model_validate(entry) for entry in json.loads(tensors_to_json(tensors)))


def test_the_command_exits_4_when_an_endpoint_drifted(
    server: Server, world: tuple[Path, dict[str, Artifact]], bundles: dict[str, Golden], tmp_path: Path
) -> None:
    arguments = ("verify", f"http://{server.http_url}", "rerank", "-r", world[0])
    assert trimaran_json_here(*arguments, home=tmp_path)["models"][0]["holds"]
    path = world[0] / "rerank" / "1" / GOLDEN_FILE
    golden = bundles["rerank"]
    moved = {name: np.roll(array, 1, axis=0) for name, array in golden.tensors.items()}
    path.write_text(golden.model_copy(update={"answers": json_tensors(moved)}).to_json())
    done = trimaran_here(*arguments, "--json", home=tmp_path)
    path.write_text(golden.to_json())
    assert done.returncode == 4
    assert "not what was proven" in done.stderr


def test_a_repository_without_bundles_is_said_so(server: Server, tmp_path: Path) -> None:
    with Client(server.grpc_url) as client, pytest.raises(UsageError, match="no golden bundle"):
        verify_all(client, tmp_path, "rerank")
