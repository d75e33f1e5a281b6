"""Everything that is decided before any work: the model, the shapes, the gates, the texts."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trimaran.benchmarks.report.figures import grid
from trimaran.core.candidates import Candidate, candidates
from trimaran.core.config import DeployConfig
from trimaran.core.corpus import Part, read_pairs, read_texts, require_useful, shipped_pairs, shipped_texts
from trimaran.core.errors import UsageError
from trimaran.core.samples import Shape
from trimaran.core.spec import ModelRef, Pooling, ShapeProfile
from trimaran.core.tasks import Gate, gates_for, task
from trimaran.export.locate import locate
from trimaran.export.reference import check_profile
from trimaran.judging.labelled import LabelledData, read_labelled
from trimaran.pipeline.assumptions import assumptions
from trimaran.runtime.text import Text

LANES = 2


@dataclass(frozen=True)
class Plan:
    """Everything that is decided before any work: `--dry-run` prints it."""

    config: DeployConfig
    ref: ModelRef
    profile: ShapeProfile
    gates: tuple[Gate, ...]
    candidates: tuple[Candidate, ...]
    calibration: tuple[Text, ...]
    judging: tuple[Text, ...]
    shapes: tuple[Shape, ...]
    name: str
    repository: Path
    report: Path
    data: LabelledData | None = None
    # What is cut or assumed of how the model reads text.
    notes: tuple[str, ...] = ()

    @property
    def lane_threads(self) -> int:
        """Threads of a candidate while it is made and judged, beside the other lanes."""
        return max(1, self.config.threads // LANES)


def plan_deployment(config: DeployConfig) -> Plan:
    """Checks the whole request, reading files but making none."""
    rows = candidates(config.candidates)
    ref = find_model(config)
    profile = config.profile_for(ref)
    check_profile(ref, profile)
    calibration = texts_for(ref.task, "calibration", Path(config.calibration) if config.calibration else None)
    judging = texts_for(ref.task, "judging", Path(config.judging) if config.judging else None)
    refuse_shared(calibration, judging, place=1 if task(ref.task).asks else 0)
    name = config.name or ref.name
    return Plan(
        config=config,
        ref=ref,
        profile=profile,
        gates=gates_for(ref.task, config.fidelity, config.gates),
        candidates=rows,
        calibration=calibration,
        judging=judging,
        shapes=grid(profile),
        name=name,
        repository=Path(config.output),
        report=Path(config.report) if config.report else Path("reports") / name,
        data=labelled_data(config, ref),
        notes=assumptions(config, ref, profile),
    )


def texts_for(task_name: str, part: Part, path: Path | None) -> tuple[Text, ...]:
    """What candidates are calibrated or judged on, as their models read it: pairs for a task that takes two texts, else
    single texts.
    """
    row = task(task_name)
    if row.texts != "pair":
        texts: tuple[Text, ...] = shipped_texts(part) if path is None else read_texts(path)
    else:
        pairs = shipped_pairs(part) if path is None else read_pairs(path)
        texts = tuple((asked, about) for about, asked in pairs) if row.asks else pairs
    if path is not None and part == "calibration":
        require_useful(texts, path)
    return row.judging(texts) if part == "judging" else texts


def labelled_data(config: DeployConfig, ref: ModelRef) -> LabelledData | None:
    if (config.data is None) != (config.metric is None):
        given, missing = ("--data", "--metric") if config.data else ("--metric", "--data")
        raise UsageError(f"{given} was given without {missing}.", hint="Such as --data pairs.tsv --metric spearman.")
    if config.data is None or config.metric is None:
        return None
    return read_labelled(Path(config.data), config.metric, task=ref.task, labels=ref.labels)


def refuse_shared(calibration: Sequence[Text], judging: Sequence[Text], *, place: int = 0) -> None:
    """Nothing may be judged on what it was calibrated on. Of a pair the text counts, at `place`: what is asked or
    supposed of it may well be one of a few things that everyone asks.
    """
    if shared := _sides(calibration, place) & _sides(judging, place):
        raise UsageError(
            f"{len(shared)} texts are in both the calibration and the judging set, such as {min(shared)[:40]!r}.",
            hint="Nothing may be judged on what it was calibrated on: take them out of one of the two.",
        )


def _sides(texts: Sequence[Text], place: int) -> set[str]:
    return {text if isinstance(text, str) else text[place] for text in texts}


def find_model(config: DeployConfig) -> ModelRef:
    """The model that the request names, with the pooling that it asks for."""
    if config.module:
        from trimaran.export.module import locate_module

        pooling = Pooling.model_validate(config.pooling_changes())
        task_name = "embedding" if config.task == "auto" else config.task
        return locate_module(config.model, task_name=task_name, pooling=pooling)
    return locate(
        config.model,
        task_name=config.task,
        family_name=config.family,
        pooling_changes=config.pooling_changes(),
        extras=config.extras,
        top_k=config.top_k,
        hub=config.hub,
        revision=config.revision,
    )


def require_writable(*folders: Path) -> None:
    """Fails before the work rather than after it, and leaves no empty folder behind."""
    for folder in folders:
        standing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
        try:
            with tempfile.NamedTemporaryFile(dir=standing, prefix=".trimaran-"):
                pass
        except OSError as error:
            raise UsageError(
                f"{folder} cannot be written to: {error.strerror}.", hint="Choose another folder."
            ) from error
