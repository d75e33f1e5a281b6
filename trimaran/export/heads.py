"""Says with optimum which task a model's head was trained for, and whether a family has a head for a task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trimaran.core.errors import UsageError
from trimaran.core.families import family
from trimaran.core.tasks import TASKS, task
from trimaran.export.labels import cross_encoder_activation, labels_of
from trimaran.export.sentence import MULTI_VECTOR

_MASKED = "AutoModelForMaskedLM"
_NEXT_SENTENCE = "AutoModelForNextSentencePrediction"
# Pre-training classes with several heads, for which optimum knows no task. Each head loads by itself.
_PRETRAINING: dict[str, tuple[str, ...]] = {
    "BertForPreTraining": (_MASKED, _NEXT_SENTENCE),
    "ErnieForPreTraining": (_MASKED, _NEXT_SENTENCE),
    "MegatronBertForPreTraining": (_MASKED, _NEXT_SENTENCE),
    "MobileBertForPreTraining": (_MASKED, _NEXT_SENTENCE),
    "AlbertForPreTraining": (_MASKED,),
    "BigBirdForPreTraining": (_MASKED,),
}


def task_of(task_name: str, config: Mapping[str, Any], *, modules: Sequence[str], model_type: str, source: str) -> str:
    """The task that is asked for, if the model can do it; with `auto` the only task that its architecture can mean.

    `config` is config.json, `modules` are the kinds of a sentence-transformers folder's modules.
    """
    architectures = [str(name) for name in config.get("architectures") or []]
    _refuse_stanford(architectures, source)
    if MULTI_VECTOR in modules:
        return _late_task(task_name, source)
    if task_name != "auto":
        return _asked_task(task_name, architectures, model_type=model_type, source=source)
    if "SpladePooling" in modules:
        return "sparse-embedding"
    if "LogitScore" in modules:
        return "rerank"
    if modules:
        return "embedding"
    heads = heads_of(architectures)
    likely = [row.name for row in TASKS.values() if row.automatic and row.model_class in heads]
    if "AutoModelForCausalLM" in heads and family(model_type).generator:
        likely.append("embedding")
    if "text-classification" in likely and len(labels_of(config)) == 1 and config.get("problem_type") != "regression":
        likely = ["rerank"] if cross_encoder_activation(config) is not None else ["text-classification", "rerank"]
    if len(likely) != 1:
        _refuse_unclear(likely, heads, architectures, source)
    _refuse_head(likely[0], model_type)
    return likely[0]


def _late_task(task_name: str, source: str) -> str:
    if task_name not in ("auto", "feature-extraction"):
        raise UsageError(
            f"{source} is a late-interaction model, which gives a vector for each token and cannot do {task_name}.",
            hint="Leave --task out. `score` compares a query with documents.",
        )
    return "feature-extraction"


def _refuse_stanford(architectures: Sequence[str], source: str) -> None:
    if "HF_ColBERT" in architectures:
        raise UsageError(
            f"{source} is a folder of Stanford's ColBERT, which keeps its projection among the encoder's weights.",
            hint=f"Save it as sentence-transformers does: MultiVectorEncoder({source!r}).save(TARGET)",
        )


def _refuse_head(task_name: str, model_type: str) -> None:
    reason = family(model_type).refused_heads.get(task(task_name).model_class)
    if reason is not None:
        raise UsageError(f"The head of {model_type} for {task_name} cannot be exported: {reason}.")


def _refuse_unclear(likely: Sequence[str], heads: Sequence[str], architectures: Sequence[str], source: str) -> None:
    stated = ", ".join(architectures) or "not stated"
    if likely:
        reason = f"it could mean {' or '.join(likely)}"
    elif "AutoModelForCausalLM" in heads:
        reason = "it was trained to generate text, which tells no task of an encoder"
    else:
        reason = "it tells no task"
    raise UsageError(
        f"The task of {source} cannot be told from its architecture ({stated}): {reason}.",
        hint=f"Pass --task with one of {', '.join(likely or TASKS)}.",
    )


def _asked_task(task_name: str, architectures: Sequence[str], *, model_type: str, source: str) -> str:
    row = task(task_name)
    if row.bare or (task_name == "rerank" and scores_by_words(architectures, model_type)):
        return row.name
    _refuse_head(task_name, model_type)
    if not has_head(model_type, row.model_class):
        raise UsageError(f"The family {model_type} has no head for {task_name}.")
    if row.model_class not in heads_of(architectures):
        raise UsageError(
            f"{source} has no head for {task_name}: its architecture is {', '.join(architectures) or 'not stated'}.",
            hint="Train a head first, or ask for --task embedding.",
        )
    return row.name


def scores_by_words(architectures: Sequence[str], model_type: str) -> bool:
    """Whether sentence-transformers' CrossEncoder scores pairs by the next word that the model would write."""
    return bool(architectures) and architectures[0].endswith("ForCausalLM") and family(model_type).generator


def has_head(model_type: str, model_class: str) -> bool:
    """Whether transformers has this Auto class for the family, with a head that can be exported."""
    import transformers

    if model_class in family(model_type).refused_heads:
        return False
    return transformers.CONFIG_MAPPING[model_type] in getattr(transformers, model_class)._model_mapping


def heads_of(architectures: Sequence[str]) -> tuple[str, ...]:
    """The Auto classes that load these architectures: BertForTokenClassification -> AutoModelForTokenClassification."""
    return tuple(dict.fromkeys(head for name in architectures for head in _heads_of_one(name)))


def _heads_of_one(architecture: str) -> tuple[str, ...]:
    from optimum.exporters.tasks import TasksManager

    if architecture in _PRETRAINING:
        return _PRETRAINING[architecture]
    # optimum looks the name up in transformers' tables. To import the class itself would take two seconds.
    named = type(architecture, (), {"__module__": "transformers"})
    try:
        name = TasksManager.infer_task_from_model(named)
        return (TasksManager.get_model_class_for_task(name).__name__,)
    except ValueError:
        pass  # T5EncoderModel, BertForNextSentencePrediction: optimum knows no task for them
    return _heads_by_ending(architecture)


def _heads_by_ending(architecture: str) -> tuple[str, ...]:
    """For classes that optimum or transformers do not know: MyBertForTokenClassification ends as its Auto class."""
    if architecture.endswith("LMHeadModel"):
        return ()
    heads = dict.fromkeys(row.model_class for row in TASKS.values())
    return tuple(head for head in heads if architecture.endswith(head.removeprefix("AutoModel") or "Model"))
