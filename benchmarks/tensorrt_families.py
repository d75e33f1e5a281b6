"""Which families the real TensorRT parser reads, and what its builder makes of them, in FP16 and INT8.

`python benchmarks/tensorrt_families.py` writes `benchmarks/results/tensorrt-families.json`, from which
`python -m trimaran.export.families_page` makes a table. For every family, a tiny seeded model of the tests is exported
and its graphs are made in TensorRT's types. Then `tensorrt-rtx` builds each for three compute capabilities. No GPU is
needed: parser, builder and receipt are real, and nothing is timed. The result is written after each family. A second
run goes on where the first one ended; `--again` names families to build anew.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from experiment import RESULTS, ROOT, options

from trimaran.core.artifact import Artifact
from trimaran.core.corpus import shipped_texts
from trimaran.core.engine_identity import installed_version
from trimaran.core.errors import TrimaranError, first_line
from trimaran.core.families import FAMILIES
from trimaran.core.progress import SilentProgress
from trimaran.core.spec import Range, ShapeProfile
from trimaran.core.store import Store, write_atomically
from trimaran.export.locate import locate
from trimaran.export.reference import reference
from trimaran.export.to_onnx import export
from trimaran.quantize.candidates import candidate
from trimaran.quantize.settings import MakerSettings
from trimaran.quantize.stage import to_precision
from trimaran.quantize.tensorrt.engine import build_engine
from trimaran.quantize.tensorrt.engine_process import EngineOptions

# The tiny models are those of the tests.
sys.path.insert(0, str(ROOT))
from tests.export.zoo import ZOO, saved_model

OUTPUT = RESULTS / "tensorrt-families.json"
TASK = "embedding"
TARGETS = ("8.6", "8.9", "12.0")
CANDIDATES = ("onnx-fp16", "onnx-int8-qdq")
BUILDER = "tensorrt_rtx"
CALIBRATION = tuple(shipped_texts("calibration")[:24])
PROFILE = ShapeProfile(batch=Range(minimum=1, typical=2, maximum=4), sequence=Range(minimum=1, typical=16, maximum=48))
QUIET = SilentProgress()
# Heads of 16, the smallest that TensorRT runs as one attention kernel: two of them in a width of 32.
_TWO_HEADS = ("num_attention_heads", "n_heads", "n_head", "num_heads")
_HEAD_OF_16 = ("head_dim", "d_kv")
_BY_FAMILY: dict[str, dict[str, int]] = {"mobilebert": {"true_hidden_size": 32, "intra_bottleneck_size": 32}}


def main() -> int:
    parser = options(__doc__, output=OUTPUT)
    parser.add_argument("--again", nargs="*", default=[], metavar="FAMILY", help="build these anew")
    asked = parser.parse_args()
    builder = f"{BUILDER} {installed_version(BUILDER)}"
    known = json.loads(asked.output.read_text(encoding="utf-8")) if asked.output.is_file() else {}
    rows = known.get("families", {}) if known.get("builder") == builder else {}
    for name in FAMILIES:
        if name not in rows or name in asked.again:
            rows[name] = built_family(name)
            print(name, json.dumps(rows[name], ensure_ascii=False), file=sys.stderr, flush=True)
        kept = {name: rows[name] for name in FAMILIES if name in rows}
        result = {"builder": builder, "targets": TARGETS, "task": TASK, "families": kept}
        write_atomically(asked.output, json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    return 0


def built_family(name: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="trimaran-families-") as scratch:
        store = Store(Path(scratch) / "store")
        try:
            graph = exported(name, Path(scratch) / "model", store)
        except Exception as error:  # a family that cannot be exported is a row that says why
            return {row: refusal(error) for row in CANDIDATES}
        return {row: built(graph, row, store) for row in CANDIDATES}


def exported(family: str, folder: Path, store: Store) -> Artifact:
    saved_model(folder, family, TASK, **sizes(family))
    eager = reference(locate(str(folder), task_name=TASK), PROFILE, store=store, progress=QUIET)
    return export(eager, store=store, progress=QUIET)


def sizes(family: str) -> dict[str, int]:
    stated = ZOO[family][1]
    heads = {name: 2 for name in _TWO_HEADS if name in stated}
    # As many queries share a key as in the zoo: two.
    shared = {"num_key_value_heads": 1} if "num_key_value_heads" in stated else {}
    return {**heads, **shared, **{name: 16 for name in _HEAD_OF_16 if name in stated}, **_BY_FAMILY.get(family, {})}


def built(graph: Artifact, name: str, store: Store) -> dict[str, Any]:
    """What one plan for all targets is; where there is none, why, and which targets can be built alone."""
    try:
        made = to_precision(graph, candidate(name), MakerSettings(calibration=CALIBRATION), store=store, progress=QUIET)
        try:
            return receipt_of(made, TARGETS, store)
        except TrimaranError as error:
            alone = [target for target in TARGETS if builds(made, target, store)]
            return {**refusal(error), "built": alone}
    except Exception as error:  # likewise for a graph that cannot be made
        return refusal(error)


def receipt_of(graph: Artifact, targets: tuple[str, ...], store: Store) -> dict[str, Any]:
    """The worst of the targets' receipts. A receipt that falls short is part of the result, not an error."""
    plan = build_engine(
        graph,
        EngineOptions(compute_capabilities=targets),
        runtime=BUILDER,
        allow_shortfall=True,
        store=store,
        progress=QUIET,
    )
    checks = [{"name": check.name, "observed": check.observed, "limit": check.limit} for check in plan.checks]
    return {"built": list(targets), "receipt": checks, "reason": ""}


def builds(graph: Artifact, target: str, store: Store) -> bool:
    try:
        receipt_of(graph, (target,), store)
    except TrimaranError:
        return False
    return True


def refusal(error: Exception) -> dict[str, Any]:
    return {"built": [], "receipt": [], "reason": getattr(error, "message", "") or first_line(error)}


if __name__ == "__main__":
    sys.exit(main())
