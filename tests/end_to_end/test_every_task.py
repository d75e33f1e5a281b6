"""Tasks that ask and answer with more than one text and one vector, through the whole line by one command."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.commands import trimaran, trimaran_here, trimaran_json, trimaran_json_here
from tests.export.zoo import saved_model
from tests.texts import judging_pairs
from tests.workers import workers_in_this_process
from trimaran import load
from trimaran.judging.golden import read_golden
from trimaran.quantize.candidates import CANDIDATES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


# They are served and compared with their golden bundles while they are deployed.
CHECKED = ("question-answering", "fill-mask")
DEPLOYED = (*CHECKED, "embedding", "rerank", "zero-shot-classification")


@dataclass(frozen=True)
class Served:
    """A tiny BERT of each task, deployed into one repository, and the server of it."""

    folder: Path
    home: Path
    repository: Path
    url: str
    # The commands that each deployment printed at its end, by task and heading.
    printed: dict[str, dict[str, list[str]]]


def deploy_command(folder: Path, task: str) -> list[object]:
    """A short race and few judging texts are enough: none of these tests is about speed or loss."""
    checked = [] if task in CHECKED else ["--no-serve-check"]
    return [
        "deploy", "-m", folder / task, "--task", task, "--name", task, "--candidates", "onnxruntime-fused", "--quick",
        "--judging", folder / "judging.jsonl", *checked,
    ]  # fmt: skip


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The server is started as the deployments say, with ports that are free.

    One is deployed by a real command with real children, the others without leaving this process.
    """
    folder = tmp_path_factory.mktemp("tasks")
    judging_pairs(folder / "judging.jsonl")
    home = folder / "home"
    printed: dict[str, dict[str, list[str]]] = {}
    for task in DEPLOYED:
        saved_model(folder / task, "bert", task)
        if task == CHECKED[0]:
            done = trimaran(*deploy_command(folder, task), home=home, cwd=folder)
        else:
            with workers_in_this_process():
                done = trimaran_here(*deploy_command(folder, task), home=home, cwd=folder)
        assert done.returncode == 0, done.stderr
        lines = [line.split(maxsplit=1) for line in done.stderr.splitlines()]
        printed[task] = {line[0]: shlex.split(line[1]) for line in lines if line and line[0] in ("Serve", "Ask")}
    (serve,) = {tuple(lines["Serve"]) for lines in printed.values()}
    running = trimaran_json(*serve[1:], "--free-ports", "--detach", home=home)
    try:
        yield Served(folder, home, Path(serve[2]), f"127.0.0.1:{running['grpc_port']}", printed)
    finally:
        trimaran_json("stop", serve[2], home=home)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("task", CHECKED)
def test_a_task_is_deployed_proven_over_the_wire_and_verified_live(served: Served, task: str) -> None:
    said = trimaran_json_here(*deploy_command(served.folder, task), home=served.home, cwd=served.folder)
    assert said["unchanged"], "these are the facts of the deployment that the server has"
    assert said["served"]["batch_change"] <= 1e-5
    golden = read_golden(served.repository / task / "1" / "golden.json")
    assert golden.task == task and len(golden.rows) >= 64
    (found,) = trimaran_json_here("verify", served.url, task, "-r", served.repository, home=served.home)["models"]
    assert found["holds"] and found["rows"] == len(golden.rows)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("task", DEPLOYED)
def test_what_deploy_prints_at_its_end_works_as_it_is_printed(served: Served, task: str) -> None:
    """Each line is typed as it stands, with the port of this test's server after it."""
    ask = served.printed[task]["Ask"]
    assert ask[:3] == ["trimaran", "query", task]
    run = trimaran if task == CHECKED[0] else trimaran_here
    done = run(*ask[1:], "--url", served.url, home=served.home)
    assert done.returncode == 0, done.stderr
    # Spans and fillings are tables below their text; other answers follow it on its line.
    below = task in ("question-answering", "fill-mask")
    assert done.stdout.startswith(ask[3] + ("\n" if below else "\t"))


def test_a_masked_model_classifies_by_label_words(served: Served) -> None:
    """No head and no training: the command, the deployed folder in process, and the golden bundle agree on it."""
    template, words = "{} It is the {mask} .", {"one": ["the", "again"], "two": ["and"]}
    labels = [part for label, each in words.items() for part in ("--label", f"{label}={','.join(each)}")]
    asked = ("query", "fill-mask", "A fine day.", *labels, "--template", template, "--url", served.url)
    [answer] = trimaran_json_here(*asked, home=served.home)["answers"]
    with load(served.repository / "fill-mask") as model:
        wanted = model.classify("A fine day.", words, template=template)
    assert [label for label, _ in answer] == [row["label"] for row in wanted]
    assert [score for _, score in answer] == pytest.approx([row["score"] for row in wanted], abs=1e-5)
    golden = read_golden(served.repository / "fill-mask" / "1" / "golden.json")
    assert sum("label_words" in str(row["OPTIONS"]) for row in golden.rows) >= 8


def test_every_candidate_that_competes_unasked_is_made_judged_and_measured(tiny_model: Path, tmp_path: Path) -> None:
    deploy = (
        "deploy", "-m", tiny_model, "--name", "tiny", "--budget", "5", "--no-serve-check",
        "--judging", judging_pairs(tmp_path / "judging.jsonl"),
    )  # fmt: skip
    planned = trimaran_json_here(*deploy, "--dry-run", home=tmp_path / "home", cwd=tmp_path)
    unasked = {row.name for row in CANDIDATES.values() if row.default}
    assert set(planned["candidates"]) == unasked
    # By name they all compete in the short race, too.
    named = ("--candidates", ",".join(planned["candidates"]), "--quick")
    with workers_in_this_process():
        said = trimaran_json_here(*deploy, *named, home=tmp_path / "home", cwd=tmp_path)
    found = {row["name"]: row for row in said["candidates"]}
    assert set(found) == unasked
    assert not [row["name"] for row in found.values() if row["verdict"] == "failed"]
    stopped = [row for row in found.values() if row["verdict"] == "stopped"]
    assert all("not searched" in row["reason"] for row in stopped)
    assert all(row["speedup"] and row["quality"] for row in found.values() if row not in stopped)
