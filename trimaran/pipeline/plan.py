"""The plan of a deployment: the model, shapes, gates, candidates and texts, all checked before any work."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import trimaran
from trimaran.benchmarks.report.figures import decisive, grid
from trimaran.core.backends import backend
from trimaran.core.config import DeployConfig
from trimaran.core.corpus import (
    Part,
    read_pairs,
    read_texts,
    require_useful,
    shipped_pairs,
    shipped_texts,
)
from trimaran.core.devices import CPU, Device, choose_device, torch_lacks_cuda
from trimaran.core.environment import capture
from trimaran.core.errors import UsageError
from trimaran.core.export_libraries import require_export_libraries
from trimaran.core.progress import Progress
from trimaran.core.proof_effort import LARGE, ProofEffort, proof_effort
from trimaran.core.samples import Shape
from trimaran.core.spec import ModelRef, Pooling, ShapeProfile
from trimaran.core.store import Store
from trimaran.core.tasks import TASKS, Gate, gates_for, task
from trimaran.export.adopt import adopted_ref, graph_without_weights
from trimaran.export.locate import locate
from trimaran.export.reference import check_profile
from trimaran.judging.labelled import LabelledData, read_labelled
from trimaran.pipeline.assumptions import assumptions
from trimaran.pipeline.shipped_for_model import fewer_texts, readable_for
from trimaran.quantize.candidates import Candidate, candidates
from trimaran.runtime.cuda_driver import gpu_names
from trimaran.runtime.text import Text

# Candidates that are made and judged at once.
LANES = 2


@dataclass(frozen=True)
class DeployPlan:
    config: DeployConfig
    ref: ModelRef
    profile: ShapeProfile
    gates: tuple[Gate, ...]
    candidates: tuple[Candidate, ...]
    # Texts that INT8 is calibrated on, and texts that every candidate is judged on.
    calibration: tuple[Text, ...]
    judging: tuple[Text, ...]
    # Shapes that are timed.
    shapes: tuple[Shape, ...]
    # What callers will call the model.
    name: str
    repository: Path
    report: Path
    # Where candidates are proven and timed.
    device: Device = CPU
    # Where eager PyTorch runs: on the same device, or on the CPU where torch lacks CUDA.
    eager_device: str = "cpu"
    # The user's labelled data.
    data: LabelledData | None = None
    # The model that this one is a student of.
    teacher: ModelRef | None = None
    # The ONNX file of a model that has no trained weights: it is the reference then.
    graph: Path | None = None
    # What is cut or assumed of how the model reads text.
    notes: tuple[str, ...] = ()

    @property
    def stages(self) -> int:
        """How many stages the line reports: export, the library, eager, the candidates, and what follows them."""
        after = (
            "measure",
            "golden bundle",
            "model repository",
            *(("served check",) if self.config.serve_check else ()),
        )
        fused = any(row.fused for row in self.candidates)
        return 3 + (self.data is not None) + (self.teacher is not None) + fused + len(self.candidates) + len(after)

    @property
    def effort(self) -> ProofEffort:
        return proof_effort(self.ref.layers, self.ref.hidden)

    @property
    def judging_effort(self) -> ProofEffort:
        return _judging_effort(self.config, self.ref)

    @property
    def lane_threads(self) -> int:
        """Threads of each lane, while candidates are made and judged."""
        return max(1, self.config.threads // LANES)

    @property
    def eager_threads(self) -> int:
        """Of the export and of eager PyTorch, which run side by side; of a large model one after the other."""
        return self.config.threads if self.effort is LARGE else self.lane_threads

    def run_facts(self, command: Sequence[str]) -> dict[str, Any]:
        """What a report and a prepared version both say of the run: when, with what, and what was asked."""
        return {
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "trimaran": trimaran.__version__,
            "model": self.ref.name,
            "task": self.ref.task,
            "family": self.ref.family,
            "level": self.config.fidelity,
            "gates": self.gates,
            "objective": self.config.objective,
            "profile": self.profile,
            "environment": capture(),
            "command": tuple(command),
        }

    @property
    def eager_options(self) -> dict[str, str]:
        """How eager PyTorch is opened."""
        return {} if self.eager_device == "cpu" else {"device": self.eager_device}

    def facts(self) -> dict[str, Any]:
        """What `--dry-run` prints."""
        return {
            "model": self.ref.source,
            "family": self.ref.family,
            "task": self.ref.task,
            "layers": self.ref.layers,
            "hidden": self.ref.hidden,
            "prompts": [f"{name} (default)" if name == self.ref.default_prompt else name for name in self.ref.prompts],
            "profile": {"batch": str(self.profile.batch), "sequence": str(self.profile.sequence)},
            "fidelity": self.config.fidelity,
            **({"teacher": self.teacher.source} if self.teacher else {}),
            "gates": [f"{gate.metric} {gate.comparison} {gate.limit:g}" for gate in self.gates],
            "device": str(self.device),
            "candidates": [row.name for row in self.candidates],
            "shapes": [str(shape) for shape in self.shapes],
            "threads": self.config.threads,
            "texts": {"calibration": len(self.calibration), "judging": len(self.judging)},
            **({"targets": list(self.config.target)} if self.config.target else {}),
            "name": self.name,
            "repository": str(self.repository),
            "report": str(self.report),
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class DeployRun:
    """A plan under way, with what every stage needs."""

    plan: DeployPlan
    store: Store
    progress: Progress

    def with_note(self, note: str) -> DeployRun:
        """The same run, with a further sentence for the report."""
        return replace(self, plan=replace(self.plan, notes=(*self.plan.notes, note)))


def plan_deployment(config: DeployConfig) -> DeployPlan:
    """Checks the whole request. Reads files and writes none."""
    device, rows = device_and_candidates(config)
    lacking = torch_lacks_cuda() if device.kind == "cuda" else ""
    if config.quick and not config.candidates:
        # Each judgement takes as long as a race. Fused graphs cost a stage more and gain little beside OpenVINO's.
        rows = tuple(row for row in rows if not row.searched and not row.fused)
    ref = find_model(config)
    profile = config.profile_for(ref)
    check_profile(ref, profile)
    calibration = texts_for(ref.task, "calibration", Path(config.calibration) if config.calibration else None)
    judging = _read_texts(ref.task, "judging", Path(config.judging) if config.judging else None)
    left_out = fewer = ""
    if config.judging is None:
        judging, left_out = readable_for(ref, judging)
        judging, fewer = fewer_texts(ref, judging, quick=config.quick)
    # Texts are left out before they are grouped: a query without one of its documents would be no query.
    judging = task(ref.task).judging(judging)
    refuse_shared(calibration, judging, side=1 if task(ref.task).asks else 0)
    name = config.name or ref.name
    teacher = find_teacher(config, ref, profile)
    return DeployPlan(
        config=config,
        ref=ref,
        profile=profile,
        gates=gates_for(ref.task, config.fidelity, config.gates),
        candidates=rows,
        calibration=calibration,
        judging=judging,
        shapes=_measured_shapes(ref, profile, config),
        name=name,
        repository=Path(config.output),
        report=Path(config.report) if config.report else Path("reports") / name,
        device=device,
        # A given graph is its own reference, which ONNX Runtime runs on the CPU.
        eager_device="cpu" if lacking or graph_of(config) else device.name,
        data=labelled_data(config, ref),
        teacher=teacher,
        graph=graph_of(config),
        notes=(
            *assumptions(config, ref, profile),
            *filter(None, [left_out, fewer, _teacher_note(teacher)]),
            *_device_notes(device, lacking),
        ),
    )


def _judging_effort(config: DeployConfig, ref: ModelRef) -> ProofEffort:
    """How much is judged and timed: in a quick deployment as little as of a large model."""
    return LARGE if config.quick else proof_effort(ref.layers, ref.hidden)


def _measured_shapes(ref: ModelRef, profile: ShapeProfile, config: DeployConfig) -> tuple[Shape, ...]:
    """Those of the grid. Of a large model, and in a quick deployment, large batches that decide nothing are left out: a
    few rounds of one take as long as all the rest.
    """
    most_tokens = _judging_effort(config, ref).corner_tokens
    deciding = decisive(profile, config.objective)
    return tuple(
        shape
        for shape in grid(profile)
        if most_tokens is None or shape in deciding or shape.batch * shape.sequence <= most_tokens
    )


def device_and_candidates(config: DeployConfig) -> tuple[Device, tuple[Candidate, ...]]:
    """One device for all: candidates of the other one are refused. Named candidates decide what `auto` means."""
    named = candidates(config.candidates) if config.candidates else ()
    on_gpu = [row for row in named if backend(row.backend).needs_driver]
    device_name = "cpu" if config.device == "auto" and named and not on_gpu else config.device
    device = choose_device(device_name)
    rows = named or candidates((), on_gpu=device.kind == "cuda", on_rtx=_runs_rtx_plans(device))
    if device.kind == "cuda" and (others := [row.name for row in named if row not in on_gpu]):
        raise UsageError(
            f"{', '.join(others)} would run on the CPU, and the device is {device.name}.",
            hint="Name candidates of one device, or pass --device cpu.",
        )
    return device, rows


def _runs_rtx_plans(device: Device) -> bool:
    """Whether this is an RTX GPU, for which tensorrt_rtx is made, and the library is here."""
    return device.kind == "cuda" and "RTX" in gpu_names()[device.number] and not backend("tensorrt_rtx").available()


def _device_notes(device: Device, lacking: str) -> tuple[str, ...]:
    if device.kind == "cpu":
        return ()
    eager = (
        f"Eager PyTorch was not measured on the GPU: {lacking}. Its answers and times are those of the CPU."
        if lacking
        else f"Eager PyTorch ran on {device.name} in fp32 with TF32 off."
    )
    return f"Proven and timed on {device}.", eager


def texts_for(task_name: str, part: Part, path: Path | None) -> tuple[Text, ...]:
    """The user's texts or the shipped ones, in rows as the task is judged on them."""
    texts = _read_texts(task_name, part, path)
    return task(task_name).judging(texts) if part == "judging" else texts


def _read_texts(task_name: str, part: Part, path: Path | None) -> tuple[Text, ...]:
    """Single texts or pairs."""
    row = task(task_name)
    if row.texts != "pair":
        texts: tuple[Text, ...] = shipped_texts(part) if path is None else read_texts(path)
        if row.with_names and part == "judging" and path is None:
            texts = (*texts, *shipped_texts("names"))
    else:
        pairs = shipped_pairs(part) if path is None else read_pairs(path)
        # The files hold (context, question), and such a model reads the question first.
        texts = tuple((question, context) for context, question in pairs) if row.asks else pairs
    if path is not None and part == "calibration":
        require_useful(texts, path)
    return texts


def labelled_data(config: DeployConfig, ref: ModelRef) -> LabelledData | None:
    if (config.data is None) != (config.metric is None):
        present, missing = ("--data", "--metric") if config.data else ("--metric", "--data")
        raise UsageError(f"{present} was given without {missing}.", hint="Such as --data pairs.tsv --metric spearman.")
    if config.data is None or config.metric is None:
        return None
    return read_labelled(Path(config.data), config.metric, task=ref.task, labels=ref.labels)


def refuse_shared(calibration: Sequence[Text], judging: Sequence[Text], *, side: int = 0) -> None:
    """Raises UsageError when a text is in both sets.

    Of a pair only the text at `side` counts. Questions and hypotheses repeat, because people ask the same few.
    """
    if shared := _sides(calibration, side) & _sides(judging, side):
        raise UsageError(
            f"{len(shared)} texts are in both the calibration and the judging set, such as {min(shared)[:40]!r}.",
            hint="Nothing may be judged on what it was calibrated on: take them out of one of the two.",
        )


def _sides(texts: Sequence[Text], side: int) -> set[str]:
    return {text if isinstance(text, str) else text[side] for text in texts}


def find_model(config: DeployConfig) -> ModelRef:
    """The model that the config names, with the pooling that it asks for."""
    require_export_libraries()
    if config.module:
        from trimaran.export.module import locate_module

        pooling = Pooling.model_validate(config.pooling_changes())
        task_name = "embedding" if config.task == "auto" else config.task
        return locate_module(config.model, task_name=task_name, pooling=pooling)
    if graph := graph_of(config):
        return adopted_ref(
            graph, task_name=config.task, family_name=config.family, pooling_changes=config.pooling_changes()
        )
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


def find_teacher(config: DeployConfig, student: ModelRef, profile: ShapeProfile) -> ModelRef | None:
    """The model of --teacher. Raises UsageError if its answers cannot be compared with the student's."""
    if config.teacher is None:
        return None
    if config.target:
        raise UsageError(
            "--teacher and --target cannot go together.", hint="Prove the student against its teacher on this machine."
        )
    if not task(student.task).distilled:
        known = ", ".join(row.name for row in TASKS.values() if row.distilled)
        raise UsageError(f"There is no level `distilled` for {student.task}.", hint=f"--teacher is known for: {known}.")
    teacher = locate(config.teacher, task_name=student.task, hub=config.hub)
    outputs, wanted = (
        [(spec.name, spec.dims) for spec in task(student.task).outputs(ref)] for ref in (student, teacher)
    )
    if outputs != wanted or student.labels != teacher.labels:
        raise UsageError(
            f"{config.teacher} answers otherwise than {config.model}: {_answer_words(teacher)}, and "
            f"{_answer_words(student)}.",
            hint="A student has its teacher's labels, and vectors of the same length.",
        )
    check_profile(teacher, profile)
    return teacher


def _teacher_note(teacher: ModelRef | None) -> str:
    if teacher is None:
        return ""
    gates = "; ".join(f"{gate.metric} {gate.comparison} {gate.limit:g}" for gate in task(teacher.task).distilled)
    return f"Every candidate is also held against the teacher {teacher.name}, at the level distilled: {gates}."


def _answer_words(ref: ModelRef) -> str:
    [spec, *_] = task(ref.task).outputs(ref)
    labels = f" ({', '.join(ref.labels[:6])})" if ref.labels else ""
    return f"{spec.dims[-1]} numbers of {spec.name}{labels}"


def graph_of(config: DeployConfig) -> Path | None:
    """The ONNX file that the config names, if there are no trained weights beside it."""
    return None if config.module else graph_without_weights(config.model)


def require_writable(*folders: Path) -> None:
    """Raises UsageError for a folder that cannot be written to, before any work. Leaves no empty folder behind."""
    for folder in folders:
        existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
        try:
            with tempfile.NamedTemporaryFile(dir=existing, prefix=".trimaran-"):
                pass
        except OSError as error:
            raise UsageError(
                f"{folder} cannot be written to: {error.strerror}.", hint="Choose another folder."
            ) from error
