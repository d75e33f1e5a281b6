"""Small models that have really learned something from made-up text, so that their answers are no noise."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.export import zoo

NAMES = ("Anna", "Boris", "Clara", "David", "Emma", "Felix", "Greta", "Hugo")
SURNAMES = ("Weber", "Novak", "Rossi", "Smith", "Meyer", "Silva")
PLACES = ("Paris", "London", "Berlin", "Tokyo", "Vienna", "Oslo", "Rome", "北京")
YEARS = tuple(str(year) for year in range(1990, 2020))
TOPICS = (("weather", "rain", "storm"), ("food", "bread", "soup"), ("music", "song", "piano"))
_SIZES = {"hidden_size": 64, "intermediate_size": 128, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


Draw = Callable[[random.Random, Any, int], dict[str, Any]]
STEPS, LEARNED, LAST = 2000, 0.01, 20


def trained_model(folder: Path, task: str) -> Path:
    """A BERT with the task's head, trained until it knows its lesson, as a model folder.

    How long that takes differs: the zoo's tokenizer is trained too, and breaks ties as its threads come.
    """
    import torch
    import transformers

    zoo.saved_model(folder, "bert", task, **_SIZES)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = getattr(transformers, zoo.HEADS[task]).from_pretrained(folder).train()
    with torch.no_grad():
        for value in model.parameters():
            value.mul_(0.66 if value.ndim > 1 else 1.0)  # the zoo's weights are too large to learn from
    draw, chance = LESSONS[task], random.Random(0)
    torch.manual_seed(0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # for so small a model a second thread only waits
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = [math.inf] * LAST
    for _ in range(STEPS):
        loss = _loss(model, draw(chance, tokenizer, 24))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses = [*losses[1:], loss.item()]
        if max(losses) < LEARNED:
            break
    torch.set_num_threads(threads)
    assert max(losses) < LEARNED, f"{task} was not learned: {max(losses):.3f}"
    model.eval().save_pretrained(folder)
    return folder


def person(chance: random.Random) -> str:
    return f"{chance.choice(NAMES)} {chance.choice(SURNAMES)}"


def _entity_batch(chance: random.Random, tokenizer: Any, size: int) -> dict[str, Any]:
    import torch

    texts, spans = [], []
    for _ in range(size):
        who, where = person(chance), chance.choice(PLACES)
        form = chance.choice(
            (
                "{0} lives in {1}.",
                "In {1}, {0} was seen.",
                "{0} went to {1}",
                "{1} likes {0}!",
                "{0} went to {1} 🍕",
                "rain",
            )
        )
        texts.append(form.format(who, where))
        spans.append([(who, 1), (where, 3)])
    encoded = tokenizer(texts, padding=True, return_offsets_mapping=True, return_tensors="pt")
    labels = torch.zeros_like(encoded["input_ids"])
    for row, (text, found) in enumerate(zip(texts, spans, strict=True)):
        for word, first in found:
            begin = text.find(word)
            for place, (start, end) in enumerate(encoded["offset_mapping"][row].tolist()):
                if begin >= 0 and begin <= start < end <= begin + len(word):
                    labels[row, place] = first if start == begin else first + 1
    labels[encoded["attention_mask"] == 0] = -100
    return {**{key: value for key, value in encoded.items() if key != "offset_mapping"}, "labels": labels}


def _question_batch(chance: random.Random, tokenizer: Any, size: int) -> dict[str, Any]:
    import torch

    questions, contexts, answers = [], [], []
    for _ in range(size):
        facts = {"Who?": person(chance), "Where?": chance.choice(PLACES), "When?": chance.choice(YEARS)}
        form = chance.choice(("{0} came to {1} in {2}.", "In {2}, {0} left {1}.", "{1} saw {0}; it was {2}."))
        question = chance.choice(tuple(facts))
        questions.append(question)
        contexts.append(form.format(*facts.values()))
        answers.append(facts[question])
    encoded = tokenizer(questions, contexts, padding=True, return_offsets_mapping=True, return_tensors="pt")
    places: list[tuple[int, int]] = []
    for row, (context, answer) in enumerate(zip(contexts, answers, strict=True)):
        begin = context.find(answer)
        inside = [
            place
            for place, (start, end) in enumerate(encoded["offset_mapping"][row].tolist())
            if encoded.sequence_ids(row)[place] == 1 and begin <= start < end <= begin + len(answer)
        ]
        places.append((inside[0], inside[-1]))
    starts, ends = torch.tensor(places).T
    kept = {key: value for key, value in encoded.items() if key != "offset_mapping"}
    return {**kept, "start_positions": starts, "end_positions": ends}


def _pair_batch(chance: random.Random, tokenizer: Any, size: int) -> dict[str, Any]:
    import torch

    queries, documents, same = [], [], []
    for index in range(size):
        topic = chance.choice(TOPICS)
        other = topic if index % 2 else chance.choice([words for words in TOPICS if words is not topic])
        queries.append(chance.choice(topic))
        documents.append(f"The {chance.choice(other)} and the {chance.choice(other)}.")
        same.append(float(index % 2))
    encoded = tokenizer(queries, documents, padding=True, return_tensors="pt")
    return {**encoded, "same": torch.tensor(same)[:, None]}


def _loss(model: Any, batch: dict[str, Any]) -> Any:
    """The head's own loss, or for scores of pairs the one of their sigmoid: transformers would take a square."""
    import torch

    if "same" not in batch:
        return model(**batch).loss
    same = batch.pop("same")
    return torch.nn.functional.binary_cross_entropy_with_logits(model(**batch).logits, same)


LESSONS: dict[str, Draw] = {
    "token-classification": _entity_batch,
    "question-answering": _question_batch,
    "rerank": _pair_batch,
}
