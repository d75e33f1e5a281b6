"""`trimaran tune` on the real Triton: measured, written, served; and nothing changed where it must not be."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import psutil
import pytest

from tests.commands import trimaran, trimaran_json
from tests.pipeline.test_promote import bundle
from tests.serving.worlds import TEXTS, by_hand
from tests.tiny import tiny_artifact
from trimaran.core.config_pbtxt import CONFIG_FILE, config_from_pbtxt
from trimaran.core.errors import RepositoryError, UsageError
from trimaran.core.progress import SilentProgress
from trimaran.core.serving_json import SERVING_FILE, Serving
from trimaran.model_repository.check import problems
from trimaran.model_repository.layout import lay_out
from trimaran.pipeline.tune import run
from trimaran.pipeline.tune.record import TUNING_FILE, Tuning
from trimaran.pipeline.tune.setting_files import tunable, write_setting
from trimaran.pipeline.tune.settings import Setting
from trimaran.pipeline.tune.trials import Trials
from trimaran.serving.client import Client
from trimaran.serving.triton import daemon

pytestmark = [pytest.mark.usefixtures("triton"), pytest.mark.timeout(240)]
QUIET = SilentProgress()
OTHER = Setting(instances=2, threads=2, delay_us=300, preferred=(2, 4), rows_a_call=2, streams=2)


def laid_out(root: Path) -> Path:
    lay_out(
        tiny_artifact(root / "s", backend="openvino"),
        repository=root / "model_repository",
        name="m",
        rows="equal-length",
        threads=1,
        golden=bundle(1.0),
    )
    return root / "model_repository"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return laid_out(tmp_path)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Tuning]:
    """One short search through the command, which writes nothing into the repository."""
    root = tmp_path_factory.mktemp("tuned")
    before = _contents(laid_out(root))
    said = trimaran_json("tune", "m", "--budget", 5, "--dry-run", home=root / "home", cwd=root)
    assert _contents(root / "model_repository") == before
    assert (said["applied"], said["servers"]) == (False, [])
    for path in (said["report"]["md"], said["report"]["html"]):
        assert "2 × 1 thread" in (root / path).read_text(), "the present setting"
    return root, Tuning.model_validate(said["tuning"])


def test_the_present_setting_is_measured_and_whatever_else_there_was_time_for(found: tuple[Path, Tuning]) -> None:
    tuning = found[1]
    assert tuning.present in tuning.measured
    assert not [tried.reason for tried in tuning.tried if tried.verdict == "rejected"]
    assert all(figures.alone_s > 0 and figures.crowd_per_s > 0 for figures in tuning.measured.values())


def test_a_live_server_takes_the_setting_over(found: tuple[Path, Tuning], repository: Path) -> None:
    state = daemon.serve_detached(repository)
    try:
        tuning = found[1].model_copy(update={"chosen": OTHER})
        assert run.apply(repository, tuning, progress=QUIET) == (state.http_port,)
        with Client(f"127.0.0.1:{state.grpc_port}") as client:
            np.testing.assert_allclose(client.embed("m", TEXTS), by_hand(TEXTS), atol=1e-6)
            assert "2 × 2 threads" in client.model("m").parameters["tuned"]
    finally:
        daemon.stop(repository)
    assert problems(repository) == ()
    assert tunable(repository, "m").setting == OTHER
    for path in (repository / "m" / CONFIG_FILE, repository / "m" / "1" / CONFIG_FILE):
        config = config_from_pbtxt(path.read_text())
        assert config.instance_group is not None and config.dynamic_batching is not None
        assert (config.instance_group.count, config.instance_group.spares) == (1, 1)
        assert config.dynamic_batching.max_queue_delay_us == 300
        assert config.dynamic_batching.preferred_batch_sizes == (2, 4)
        assert config.dynamic_batching.queue is not None, "what was not tuned stays"
    serving = Serving.model_validate_json((repository / "m" / "1" / SERVING_FILE).read_bytes())
    assert (serving.rows_a_call, serving.streams) == (2, 2)
    assert Tuning.model_validate_json((repository / "m" / "1" / TUNING_FILE).read_bytes()).chosen == OTHER


def test_a_setting_that_a_live_server_cannot_load_is_taken_back(found: tuple[Path, Tuning], repository: Path) -> None:
    before = _contents(repository)
    state = daemon.serve_detached(repository)
    try:
        tuning = found[1].model_copy(update={"chosen": OTHER.model_copy(update={"preferred": (2, 64)})})
        with pytest.raises(RepositoryError, match="is taken back, m is served as before"):
            run.apply(repository, tuning, progress=QUIET)
        assert _contents(repository) == before
        with Client(f"127.0.0.1:{state.grpc_port}") as client:
            np.testing.assert_allclose(client.embed("m", TEXTS), by_hand(TEXTS), atol=1e-6)
    finally:
        daemon.stop(repository)


def test_a_server_that_dies_in_a_trial_is_started_again(repository: Path) -> None:
    found = tunable(repository, "m")
    with Trials(found, callers=2) as trials:
        trials.measure(found.setting, 0.1)
        _kill_the_trial_server()
        assert trials.measure(OTHER, 0.1).crowd_answers > 0


def test_what_cannot_be_tuned_is_refused_in_words(repository: Path, tmp_path: Path) -> None:
    done = trimaran("tune", "nobody", "-r", repository, home=tmp_path / "home")
    assert (done.returncode, "There are: m, m_openvino" in done.stderr) == (2, True)
    with pytest.raises(UsageError, match="not one stage with its engine inside"):
        tunable(repository, "m_openvino")
    stage = repository / "m" / "1" / "text.py"
    text = stage.read_text()
    stage.write_text(text + "\n# older\n")
    with pytest.raises(UsageError, match="was laid out by another trimaran"):
        tunable(repository, "m")
    stage.write_text(text)
    (repository / "m" / "1" / "golden.json").unlink()
    with pytest.raises(UsageError, match="has no golden bundle"):
        tunable(repository, "m")


def test_a_model_that_has_drifted_is_not_tuned(repository: Path, tmp_path: Path) -> None:
    (repository / "m" / "1" / "golden.json").write_text(bundle(-1.0).to_json())
    done = trimaran("tune", "m", "-r", repository, "--json", home=tmp_path / "home")
    assert done.returncode == 4
    assert "is not what was proven" in json.loads(done.stdout)["error"]["message"]


def test_a_setting_is_written_whole_or_not_at_all(
    found: tuple[Path, Tuning], repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trimaran.pipeline.tune import setting_files

    before, write = _contents(repository), setting_files.write_atomically
    written: list[Path] = []

    def fail_at_the_third(path: Path, text: str) -> None:
        written.append(path)
        if len(written) == 3:
            raise OSError(28, "No space left on device")
        write(path, text)

    monkeypatch.setattr(setting_files, "write_atomically", fail_at_the_third)
    with pytest.raises(OSError, match="No space left"):
        write_setting(tunable(repository, "m"), found[1].model_copy(update={"chosen": OTHER}))
    assert _contents(repository) == before


def _contents(repository: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(repository)): path.read_bytes()
        for path in repository.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }


def _kill_the_trial_server() -> None:
    family = psutil.Process().children(recursive=True)
    (server,) = [process for process in family if process.is_running() and process.name() == "tritonserver"]
    server.kill()
    psutil.wait_procs([server], timeout=10)
