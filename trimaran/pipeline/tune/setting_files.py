"""A setting in the files of a repository: reads the present one, lays out one for a trial, writes the chosen one."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from trimaran.core.config_pbtxt import CONFIG_FILE, pbtxt_from_config, read_config, write_config
from trimaran.core.digests import DIGESTS_FILE, list_digests
from trimaran.core.errors import UsageError
from trimaran.core.model_config import ON_DEMAND, DynamicBatching, InstanceGroup, ModelConfig
from trimaran.core.serving_json import BLS, SERVING_FILE, Serving, read_serving, write_serving
from trimaran.core.store import locked, write_atomically
from trimaran.judging.golden import GOLDEN_FILE, Golden, read_golden
from trimaran.model_repository.layout import copy_version, stage_is_current
from trimaran.model_repository.versions import model_versions
from trimaran.pipeline.tune.record import TUNING_FILE, Tuning
from trimaran.pipeline.tune.settings import Setting


@dataclass(frozen=True)
class Tunable:
    """The version of a model that is served, with how it is served at present."""

    model: Path
    version: int
    config: ModelConfig
    serving: Serving
    golden: Golden

    @property
    def folder(self) -> Path:
        return self.model / str(self.version)

    @property
    def largest(self) -> int:
        """Rows that the engine was proven with at once."""
        return self.serving.profile.batch.maximum

    @property
    def setting(self) -> Setting:
        group, batching = self.config.instance_group or InstanceGroup(), self.config.dynamic_batching
        return Setting(
            instances=group.count + group.spares,
            threads=min(self.serving.threads, len(os.sched_getaffinity(0))),
            delay_us=batching.max_queue_delay_us if batching else 0,
            preferred=batching.preferred_batch_sizes if batching else (),
            rows_a_call=1 if self.serving.rows == "alone" else self.serving.rows_a_call or self.largest,
            stretch=self.serving.stretch,
            streams=self.serving.streams,
        )


def tunable(repository: Path, name: str) -> Tunable:
    """Raises UsageError for a model that is not there, is no text stage with its engine inside, or has no golden
    bundle to hold its answers to.
    """
    facts = model_versions(repository, name)
    if not facts.served:
        raise UsageError(f"{name} has no version that is served.", hint="`trimaran promote` chooses one.")
    model, version = repository / name, facts.served[-1]
    config, serving = read_config(model / CONFIG_FILE), read_serving(model / str(version))
    if not facts.task or config.backend != "python" or serving.backend == BLS:
        raise UsageError(
            f"{name} is not one stage with its engine inside, and only such a stage is tuned.",
            hint="Tune the model that callers ask with text; an engine on a GPU is tuned by Triton's own analyzer.",
        )
    if not stage_is_current(model / str(version), serving):
        raise UsageError(
            f"Version {version} of {name} was laid out by another trimaran, whose stage may not know what is tuned.",
            hint="`trimaran deploy` lays it out again, from the store.",
        )
    golden = model / str(version) / GOLDEN_FILE
    if not golden.is_file():
        raise UsageError(
            f"Version {version} of {name} has no golden bundle: nothing could tell whether a setting changes answers.",
            hint="`trimaran deploy` makes one.",
        )
    return Tunable(model, version, config, serving, read_golden(golden))


def lay_trial(tuned: Tunable, setting: Setting, repository: Path) -> str:
    """The version under another name and that setting, as links, for a server that loads it when asked."""
    name = f"{tuned.model.name}--{setting.slug}"
    target = repository / name
    if not target.exists():
        target.mkdir(parents=True)
        copy_version(tuned.model, tuned.version, target)
        config, serving = _set(tuned.config, tuned.serving, setting)
        config = ModelConfig.model_validate(
            {
                **dict(config),
                "name": name,
                "latest_versions": 1,
                "served_versions": (),
                "parameters": {**config.parameters, "load": ON_DEMAND},
            }
        )
        # Written anew beside the links, never through them.
        write_serving(target / str(tuned.version), serving)
        list_digests(target / str(tuned.version), model=name, version=tuned.version)
        write_config(target / CONFIG_FILE, config)
    return name


def write_setting(tuned: Tunable, tuning: Tuning) -> dict[Path, str | None]:
    """Serves the version with the chosen setting from its next load on. Returns the files as they were before.

    The version's own configuration changes too, so that a later promotion brings the setting back.
    """
    setting = tuning.chosen
    pinned, serving = _set(tuned.config, tuned.serving, setting)
    own = tuned.folder / CONFIG_FILE
    published, _ = _set(read_config(own), tuned.serving, setting)
    noted = {"tuned": f"{setting}; {tuning.reason} The figures are in {TUNING_FILE} of the version."}
    texts = {
        tuned.folder / TUNING_FILE: tuning.to_json(),
        tuned.folder / SERVING_FILE: serving.to_json(),
        own: pbtxt_from_config(_noted(published, noted)),
        tuned.model / CONFIG_FILE: pbtxt_from_config(_noted(pinned, noted)),
    }
    before: dict[Path, str | None] = {
        path: path.read_text(encoding="utf-8") if path.exists() else None
        for path in (*texts, tuned.folder / DIGESTS_FILE)
    }
    with locked(tuned.model.parent):
        try:
            for path, text in texts.items():
                write_atomically(path, text)
            list_digests(tuned.folder, model=tuned.model.name, version=tuned.version)
        except BaseException:
            put_back(before)
            raise
    return before


def put_back(before: dict[Path, str | None]) -> None:
    for path, text in before.items():
        if text is None:
            path.unlink(missing_ok=True)
        else:
            write_atomically(path, text)


def _set(config: ModelConfig, serving: Serving, setting: Setting) -> tuple[ModelConfig, Serving]:
    group, batching = config.instance_group or InstanceGroup(), config.dynamic_batching or DynamicBatching()
    return (
        config.model_copy(
            update={
                "instance_group": group.model_copy(update={"count": 1, "spares": setting.instances - 1}),
                "dynamic_batching": batching.model_copy(
                    update={"max_queue_delay_us": setting.delay_us, "preferred_batch_sizes": setting.preferred}
                ),
            }
        ),
        serving.model_copy(
            update={
                "threads": setting.threads,
                "rows_a_call": setting.rows_a_call,
                "stretch": setting.stretch,
                "streams": setting.streams,
            }
        ),
    )


def _noted(config: ModelConfig, notes: dict[str, str]) -> ModelConfig:
    return config.model_copy(update={"parameters": {**config.parameters, **notes}})
