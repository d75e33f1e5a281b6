"""Which of the shipped texts judge a model: those it can read, and fewer where all of them would take long."""

from __future__ import annotations

from pathlib import Path

from trimaran.core.corpus import FEWEST, kinds_of, readable_texts
from trimaran.core.errors import UsageError
from trimaran.core.proof_effort import LARGE, proof_effort, some_of_each_kind
from trimaran.core.spec import ModelRef
from trimaran.core.tail import fewest_texts
from trimaran.core.tasks import task
from trimaran.runtime.text import Text


def readable_for(ref: ModelRef, texts: tuple[Text, ...]) -> tuple[tuple[Text, ...], str]:
    """Return the shipped texts that the model's tokenizer can read, and what to say if they are too few.

    A model without a `tokenizer.json` is judged on all of them.
    """
    tokenizer_file = Path(ref.directory) / "tokenizer.json"
    if not tokenizer_file.is_file():
        return texts, ""
    readable = readable_texts(texts, tokenizer_file)
    if len(readable) >= fewest_texts():
        return readable, ""
    missing = sorted(set(kinds_of(texts)) - set(kinds_of(readable)))
    without = f", and none of the kinds {', '.join(missing)}" if missing else ""
    words = (
        f"The model's tokenizer can read {len(readable)} of {len(texts)} shipped judging texts{without}: most of their "
        f"tokens are unknown to it. At least {fewest_texts()} are wanted"
    )
    advice = "give texts in a language that the model reads: --judging and --calibration"
    if len(readable) < FEWEST:
        raise UsageError(f"{words}.", hint=f"{advice[0].upper()}{advice[1:]}.")
    return readable, f"{words}; {advice}."


def fewer_texts(ref: ModelRef, texts: tuple[Text, ...], *, quick: bool) -> tuple[tuple[Text, ...], str]:
    """Some of the shipped texts for a large model or a quick deployment, and a sentence that says so; else all of them.

    Metrics that only few texts speak for (entities) need all of them.
    """
    most = LARGE.judging_of_kind if quick else proof_effort(ref.layers, ref.hidden).judging_of_kind
    if most is None or any(metric.fewest for metric in task(ref.task).metrics):
        return texts, ""
    chosen = some_of_each_kind(texts, most)
    if len(chosen) == len(texts):
        return texts, ""
    cause = "the deployment is a quick one" if quick else "the model is large"
    return chosen, (
        f"Judged on {len(chosen)} of {len(texts):,} shipped texts, {most} of each kind, because {cause}: "
        "enough to prove the same gates, with each kind seen less often. More texts are judged on with --judging."
    )
