"""The peers' side-by-side run: what is committed is shown, and the harness treats every peer alike."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import trimaran
from tests.benchmarks.fakes import row, usual_report
from tests.benchmarks.scripts import scripts_in
from tests.tiny import tiny_artifact
from trimaran.benchmarks.measure.runner import Effort
from trimaran.benchmarks.report.report_files import write_reports
from trimaran.benchmarks.scenarios.results import ClosedPoint
from trimaran.benchmarks.scenarios.settings import ClosedLoopSettings
from trimaran.core.environment import capture
from trimaran.core.errors import UnavailableError
from trimaran.core.instructions import PRODUCTS_VARIABLE
from trimaran.core.progress import SilentProgress
from trimaran.core.samples import Shape
from trimaran.core.store import HOME_VARIABLE, Store
from trimaran.model_repository.layout import lay_out

FOLDER = Path(__file__).parents[2] / "benchmarks" / "peers"
MODULES = (
    *("table", "results", "http_peer", "race", "server_load", "contest", "text_sets", "clients", "perf_tool"),
    *("page", "servers", "run"),
)
TEXTS = ("the cat sat", "the dog ran", "good dog", "bad cat sat the dog ran")


@pytest.fixture(scope="module")
def peers() -> Iterator[SimpleNamespace]:
    with scripts_in(FOLDER, MODULES) as found:
        yield found


def test_every_peer_has_a_script_and_an_environment(peers: SimpleNamespace) -> None:
    for peer in peers.table.PEERS:
        assert (FOLDER / f"{peer.script}.py").is_file(), peer.name
        assert (FOLDER / f"{peer.environment}.txt").is_file(), peer.name
    assert len({peer.work for peer in peers.table.PEERS}) == len(peers.table.PEERS)
    assert peers.table.PEERS[0].name == peers.table.REFERENCE


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_every_version_of_a_peer_is_pinned(path: Path) -> None:
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9_.]+", line) for line in lines)
    names = {line.split("==")[0].lower() for line in lines}
    assert {"numpy", "pydantic"} <= names, "what the harness needs in every environment"
    assert "torch" not in names or "torch==2.13.0" in lines, "another version brings gigabytes of CUDA"


def test_the_page_shows_the_committed_result(peers: SimpleNamespace) -> None:
    committed, page = peers.results.RESULT, peers.page.PAGE
    if not committed.exists() and not page.exists():
        pytest.skip("the peers were not run yet: `make peers` writes the result and the page")
    assert page.read_text(encoding="utf-8") == peers.page.render_page(peers.results.read_result()), "run `make peers`"


def test_one_choice_at_every_level_is_one_row_in_process_and_one_served(
    peers: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact = tiny_artifact(tmp_path / "store")
    monkeypatch.setattr(peers.run, "_chosen", lambda level, work: (row("quick"), artifact))
    race = peers.race.Race(
        model=tmp_path,
        work=tmp_path,
        texts={},
        judging=TEXTS,
        calibration=TEXTS,
        callers_texts=TEXTS,
        threads=1,
        cores=(),
    )
    alone, served, at_gateway = peers.run._ourselves(race, quick=False)
    assert at_gateway.served and at_gateway.options == {**served.options, "gateway": True}
    assert (alone.name, alone.describe) == ("trimaran strict", "quick, at every level, in process")
    with trimaran.load(alone.options["folder"]) as model:
        assert model.manifest.digest == artifact.digest
    assert served.name == "trimaran strict, served" and "Triton over HTTP" in served.describe
    assert (Path(served.options["repository"]) / served.options["name"] / "config.pbtxt").is_file()


@pytest.mark.parametrize("products", ["vnni", "without-vnni"])
def test_the_choice_of_the_committed_report_for_these_instructions_is_not_deployed_again(
    peers: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, products: str
) -> None:
    artifact = tiny_artifact(tmp_path / "store")
    results = tmp_path / "results"
    report = usual_report()
    chosen = report.row(str(report.verdict.chosen)).model_copy(update={"artifact": artifact.digest})
    kept = tuple(chosen if found.name == chosen.name else found for found in report.candidates)
    write_reports(report.model_copy(update={"candidates": kept}), results / f"minilm-strict-{products}")
    monkeypatch.setattr(peers.run, "RESULT", results / "peers.json")
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    monkeypatch.setenv(PRODUCTS_VARIABLE, products)
    monkeypatch.setattr(peers.run.subprocess, "run", lambda *_, **__: pytest.fail("it deployed again"))
    found, opened = peers.run._chosen("strict", tmp_path / "work")
    assert (found.name, opened.digest) == (chosen.name, artifact.digest)


SERVER = """
import json, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.answer({})
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.answer({"data": [{"embedding": [float(len(text)), 1.0]} for text in asked["input"]]})
    def answer(self, found):
        body = json.dumps(found).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *words):
        pass

ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Answer).serve_forever()
"""


def test_load_is_put_on_every_server_in_turn_and_one_that_does_not_open_says_why(
    peers: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "server.py"
    script.write_text(SERVER)
    peer = peers.http_peer.HttpPeer(lambda port: [sys.executable, str(script), str(port)], cwd=tmp_path, environment={})
    try:
        assert peer.encode(["ab", "abc"]).tolist() == [[2.0, 1.0], [3.0, 1.0]]
        assert peer.memory_bytes() > 1_000_000

        @contextmanager
        def opened(asked: Any, race: Any) -> Iterator[SimpleNamespace]:
            if asked.name == "dead":
                raise UnavailableError("It did not start.")
            yield SimpleNamespace(place=peer.place, rest=lambda: None)

        monkeypatch.setattr(peers.server_load, "opened", opened)
        table = [
            peers.table.Peer(name, "peer_infinity", None, "none", "a server", served=name != "no server")
            for name in ("first", "second", "dead", "no server")
        ]
        race = SimpleNamespace(threads=1, callers_texts=TEXTS)
        asked = ClosedLoopSettings(scenario="closed-loop", concurrency=(1, 3), samples=9, time_s=0.0)
        found = peers.server_load.loads(table, race, asked=asked, turns=2)
    finally:
        peer.close()
    assert sorted(one.candidate for one in found) == ["dead", "first", "first", "second", "second"]
    answered = [one for one in found if one.candidate != "dead"]
    assert all([point.concurrency for point in one.points] == [1, 3] and one.cut is None for one in answered)
    assert all(len(point.latencies_ns) >= 9 and not point.failures for one in answered for point in one.points)
    lines = peers.page._load(SimpleNamespace(loads=found))
    assert any("3 callers" in line for line in lines) and any("dead: It did not start." in line for line in lines)


def test_what_ordinary_clients_get_is_shown_with_its_cpu_and_a_client_that_cannot_run_says_why(
    peers: SimpleNamespace, tmp_path: Path
) -> None:
    race = SimpleNamespace(threads=2)
    point = ClosedPoint(concurrency=8, elapsed_ns=10**9, latencies_ns=(2_000_000,) * 99 + (9_000_000,), failures=0)
    loads = (
        peers.servers._load("trimaran, gateway", "OpenAI's client", race, (point,)),
        peers.servers._without_points("infinity torch", "httpx", race, UnavailableError("It did not start.")),
    )
    environment = capture()
    run = peers.results.ServersRun(
        created="2026-11-18T12:00:00+00:00", trimaran="0", model="m", environment=environment, threads=2, texts=4,
        texts_digest="", versions={"OpenAI's client": "3.4"}, loads=loads,
    )  # fmt: skip
    (tmp_path / "servers.json").write_text(run.to_json())
    page = "\n".join(peers.page._by_clients(peers.results.read_servers(tmp_path / "servers.json")))
    assert f"on {environment.cpu}, 2026-11-18" in page
    assert "| OpenAI's client 3.4 | trimaran, gateway | 100 (100–100); 2.00 / 2.00 ms |" in page
    assert "infinity torch: It did not start. | – |" in page


def test_public_texts_are_read_where_they_are_given(peers: SimpleNamespace, tmp_path: Path) -> None:
    (tmp_path / "agnews").mkdir()
    (tmp_path / "stsb").mkdir()
    (tmp_path / "agnews" / "dev.tsv").write_text("Some news, told at length.\tWorld\nMore news.\tSports\n")
    row = "genre\tfile\tyear\tid\t5.000\tA man dances.\tA man is dancing."
    (tmp_path / "stsb" / "sts-dev.csv").write_text(f"{row}\n{row}\n")
    assert peers.text_sets.public_sources(tmp_path) == {
        "STS-B sentences": ("A man dances.", "A man is dancing."),
        "AG News texts": ("Some news, told at length.", "More news."),
    }


def test_a_peer_beside_itself_is_equal_and_one_that_is_missing_says_so(peers: SimpleNamespace, tmp_path: Path) -> None:
    artifact = tiny_artifact(tmp_path / "store")
    made = lay_out(artifact, repository=tmp_path / "repository", name="tiny", rows="padded", threads=1)
    options = {"folder": str(made.repository / made.name / str(made.version))}
    twins = [
        peers.table.Peer(name, "peer_trimaran", None, "trimaran", "tiny, in process", options)
        for name in ("first", "second")
    ]
    absent = peers.table.Peer("absent", "peer_fastembed", "no-such-environment", "fastembed", "not here")
    broken = peers.table.Peer("broken", "peer_trimaran", None, "trimaran", "no such version", {"folder": "/nowhere"})
    shapes = {Shape(batch=1, sequence=5): TEXTS[:1], Shape(batch=4, sequence=8): TEXTS}
    race = peers.race.Race(
        model=tmp_path,
        work=tmp_path,
        texts=shapes,
        judging=TEXTS * 6,
        calibration=TEXTS,
        callers_texts=TEXTS,
        threads=1,
        cores=(),
    )
    sets = tuple(
        peers.results.TextSet(shape=shape, words="texts", tokens=shape.sequence, digest="d") for shape in shapes
    )
    shelf = Store(tmp_path / "found", force=False)
    ask = partial(
        peers.contest.contest,
        [*twins, absent, broken],
        race,
        model="tiny",
        sets=sets,
        amount=peers.contest.Amount(
            effort=Effort(rounds=2, minimum_rounds=2, minimum_time_s=0.001, warmup_time_s=0.0),
            starts=1,
            load=ClosedLoopSettings(scenario="closed-loop", concurrency=(1, 2), samples=4, time_s=0.05),
            turns=2,
        ),
        shelf=shelf,
        progress=SilentProgress(),
    )
    run = ask()
    again = ask()
    assert [found.cold_starts_ns for found in again.peers][1] == [found.cold_starts_ns for found in run.peers][1], (
        "what was found of a peer is taken up"
    )
    rows = {found.name: found for found in run.peers}
    assert rows["second"].metrics["mean_cosine_distance"] < 1e-7 and rows["second"].metrics["batch_change"] < 1e-6
    assert all(rows[name].memory_bytes and len(rows[name].cold_starts_ns) == 1 for name in ("first", "second"))
    assert {(found.candidate, found.shape) for found in run.measurements} == {
        (name, shape) for name in ("first", "second") for shape in shapes
    }
    assert "no-such-environment" in rows["absent"].failure and rows["broken"].failure
    page = peers.page.render_page(run)
    assert page.count("**cannot run here**") == 2 and "no-such-environment" in page
    assert run == peers.results.PeersRun.model_validate_json(run.model_dump_json(by_alias=True))
