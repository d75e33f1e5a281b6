"""The JSON schemas of everything we persist, written by `make schemas` and tested as current."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pydantic import BaseModel

from trimaran.benchmarks.report.report import Report
from trimaran.bulk.faiss_index import IndexFacts
from trimaran.bulk.run_folder import BulkManifest
from trimaran.core.artifact import Artifact
from trimaran.core.config import DeployConfig
from trimaran.core.digests import Digests
from trimaran.core.serving_json import Serving
from trimaran.judging.finished import Finished
from trimaran.judging.golden import Golden
from trimaran.judging.prepared import Prepared
from trimaran.pipeline.distilled_report import DistilledReport
from trimaran.pipeline.shrink import VocabularyReport
from trimaran.pipeline.tune.record import Tuning

PERSISTED: dict[str, type[BaseModel]] = {
    "manifest": Artifact,
    "report": Report,
    "config": DeployConfig,
    "golden": Golden,
    "digests": Digests,
    "prepared": Prepared,
    "finished": Finished,
    "serving": Serving,
    "tuning": Tuning,
    "bulk": BulkManifest,
    "index": IndexFacts,
    "shrink": VocabularyReport,
    "distilled": DistilledReport,
}


def schema_texts() -> dict[str, str]:
    """File name -> JSON schema."""
    return {
        f"{name}.schema.json": json.dumps(kind.model_json_schema(by_alias=True), indent=2, ensure_ascii=False) + "\n"
        for name, kind in PERSISTED.items()
    }


def write_schemas(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in schema_texts().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write_schemas(Path(sys.argv[1]))
