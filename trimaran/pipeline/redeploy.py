"""Recognises a deployment that was made before and is still in its place, so that it is not made again."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError as SchemaError

import trimaran
from trimaran.benchmarks.report.report_files import FORMATS
from trimaran.core.artifact import MANIFEST, Recipe, sha256_of
from trimaran.core.corpus import digest_of_texts
from trimaran.core.environment import LIBRARIES, capture, tools
from trimaran.core.instructions import instruction_limit
from trimaran.core.metrics import METRICS_VERSION
from trimaran.core.repository import versions_of
from trimaran.core.spec import Frozen
from trimaran.core.store import Store, write_atomically
from trimaran.model_repository.layout import Deployment
from trimaran.pipeline.plan import DeployPlan

# Settings that say where and how, and do not change what is made.
_NOT_MADE_OF = {"force", "model", "teacher", "output", "report", "calibration", "judging", "data"}


class DeployRecord(Frozen):
    """What a deployment left behind."""

    deployment: Deployment
    served: dict[str, float] | None
    # Of the manifest of the new version, and of the report.
    manifest_sha256: str
    report_sha256: str

    def paths(self, report: Path) -> dict[str, Path]:
        """The files of the report by ending."""
        return {Path(name).suffix.removeprefix("."): report / name for name in FORMATS}

    def in_place(self, report: Path) -> bool:
        """Whether the version is still the newest, and neither it nor its report was changed."""
        model = self.deployment.repository / self.deployment.name
        manifest, summary = model / str(self.deployment.version) / MANIFEST, report / "report.json"
        return (
            versions_of(model)[-1:] == (self.deployment.version,)
            and manifest.is_file()
            and summary.is_file()
            and sha256_of(manifest) == self.manifest_sha256
            and sha256_of(summary) == self.report_sha256
        )


def made_before(plan: DeployPlan, store: Store) -> DeployRecord | None:
    """The record of the same deployment, if what it made is still in its place."""
    path = _path(plan, store)
    with contextlib.suppress(OSError, SchemaError):
        record = DeployRecord.model_validate_json(path.read_bytes())
        if record.in_place(plan.report):
            return record
    return None


def remember_deployment(
    plan: DeployPlan,
    store: Store,
    deployment: Deployment,
    served: Mapping[str, float] | None,
    paths: Mapping[str, Path],
) -> None:
    version = deployment.repository / deployment.name / str(deployment.version)
    record = DeployRecord(
        deployment=deployment,
        served=dict(served) if served else None,
        manifest_sha256=sha256_of(version / MANIFEST),
        report_sha256=sha256_of(paths["json"]),
    )
    write_atomically(_path(plan, store), record.model_dump_json() + "\n")


def _path(plan: DeployPlan, store: Store) -> Path:
    """By everything that decides what is made: the model's files, the settings, the texts, machine and libraries."""
    recipe = Recipe(
        step="deploy",
        parameters={
            "model": plan.ref.digest,
            "teacher": plan.teacher.digest if plan.teacher else None,
            "config": plan.config.model_dump(mode="json", exclude=_NOT_MADE_OF),
            "candidates": [row.name for row in plan.candidates],
            "calibration": digest_of_texts(plan.calibration),
            "judging": digest_of_texts(plan.judging),
            "data": sha256_of(Path(plan.config.data)) if plan.config.data else None,
            "repository": str(plan.repository.absolute()),
            "report": str(plan.report.absolute()),
            "name": plan.name,
            "metrics": METRICS_VERSION,
            "cpu": capture().cpu,
            **instruction_limit(),
            "trimaran": trimaran.__version__,
        },
        tools=tools(*LIBRARIES),
    )
    return store.root / "records" / f"{recipe.step}-{recipe.digest[:16]}.json"
