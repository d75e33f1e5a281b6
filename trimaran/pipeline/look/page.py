"""The page of `trimaran look`: what was read, as tables and as data for its script."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from trimaran.benchmarks.report.pages import render_page
from trimaran.core.tasks import task
from trimaran.pipeline.look.look import EngineLook, Look
from trimaran.pipeline.look.reading import Reading
from trimaran.runtime.text import Array, Text

_TEMPLATES = Path(__file__).parent / "templates"
# A cell with the largest number is coloured by this share; more would make its words hard to read.
_STRONGEST = 45


def render_look(look: Look) -> str:
    """One self-contained HTML file."""
    ref = look.subject.ref
    row = task(ref.task)
    return render_page(
        "look.html",
        title=f"{ref.name}: a look inside",
        folder=_TEMPLATES,
        more_script=_asset("look.js"),
        more_style=_asset("look.css"),
        name=ref.name,
        facts=_facts(look),
        readings=[_shown(reading, index) for index, reading in enumerate(look.readings)],
        data=_script_data(look),
        has_attention=any(reading.attention is not None for reading in look.readings),
        pooling=ref.pooling.mode if ref.pooling else "",
        rests=[_rests(reading) for reading in look.readings],
        distance=row.loss.title,
        engine=_engine(look),
        neighbours=look.neighbours,
        texts=look.texts,
        texts_in_file=look.texts_in_file,
        longest=look.subject.eager.profile.sequence.maximum,
    )


def layer_names(reading: Reading) -> list[str]:
    return ["embeddings", *(f"layer {number}" for number in range(1, len(reading.states)))]


def summary(look: Look) -> dict[str, Any]:
    """What the command prints for scripts."""
    return {
        "model": look.subject.ref.name,
        "engine": look.subject.engine.directory.name if look.subject.engine else None,
        "readings": [
            {
                "text": reading.text,
                "tokens": list(reading.tokens),
                "cut": reading.cut,
                "layers": len(reading.states) - 1,
                "heads": None if reading.attention is None else int(reading.attention.shape[1]),
                "shares": None if reading.shares is None else [float(share) for share in reading.shares],
                "moved_without": None if reading.moved is None else [float(distance) for distance in reading.moved],
                "engine": _engine_summary(look.engine[index]) if look.engine else None,
                "neighbours": [neighbour._asdict() for neighbour in look.neighbours[index]] if look.neighbours else [],
            }
            for index, reading in enumerate(look.readings)
        ],
    }


def _engine_summary(engine: EngineLook) -> dict[str, Any]:
    if engine.differences is None:
        return {"answer_moved": engine.moved, "by_layer": None}
    by_layer = [None if np.isnan(row).all() else float(np.mean(row)) for row in engine.differences]
    return {"answer_moved": engine.moved, "by_layer": by_layer}


def _facts(look: Look) -> str:
    ref, first = look.subject.ref, look.readings[0]
    heads = f", {first.attention.shape[1]} heads" if first.attention is not None else ""
    pooling = f", {ref.pooling.mode} pooling" if ref.pooling else ""
    engine = look.subject.engine
    beside = f" · beside it {engine.backend} {engine.precision} ({engine.directory.name})" if engine else ""
    return f"{ref.task} · {ref.family}, {len(first.states) - 1} layers of {ref.hidden}{heads}{pooling}{beside}"


def _shown(reading: Reading, index: int) -> dict[str, Any]:
    return {"letter": "AB"[index], "text": _words(reading.text), "tokens": len(reading.tokens), "cut": reading.cut}


def _words(text: Text) -> str:
    return text if isinstance(text, str) else " ‖ ".join(text)


def _rests(reading: Reading) -> list[dict[str, Any]] | None:
    """A row for each token: its share of the pooled vector, and how far the answer moves without it."""
    if reading.shares is None and reading.moved is None:
        return None
    columns = [values for values in (reading.shares, reading.moved) if values is not None]
    scales = [float(np.abs(values).max()) or 1.0 for values in columns]
    return [
        {
            "token": token,
            "share": None if reading.shares is None else f"{reading.shares[index]:.1%}",
            "moved": None if reading.moved is None else f"{reading.moved[index]:.4f}",
            "bars": [
                round(100 * max(0.0, float(values[index])) / scale, 1)
                for values, scale in zip(columns, scales, strict=True)
            ],
        }
        for index, token in enumerate(reading.tokens)
    ]


def _engine(look: Look) -> dict[str, Any] | None:
    """Tables of layers by tokens: how far the engine's vector is from eager's."""
    engine = look.subject.engine
    if engine is None:
        return None
    return {
        "name": f"{engine.backend} {engine.precision}",
        "moved": [f"{each.moved:.2e}" for each in look.engine],
        "tables": [
            None if each.differences is None else _difference_table(reading, each.differences)
            for reading, each in zip(look.readings, look.engine, strict=True)
        ],
    }


def _difference_table(reading: Reading, differences: Array) -> dict[str, Any]:
    known = not np.isnan(differences).all()
    largest = float(np.nanmax(differences)) if known else 0.0
    layer, token = np.unravel_index(int(np.nanargmax(differences)), differences.shape) if known else (0, 0)
    names = layer_names(reading)
    means = [float(np.mean(row)) for row in differences]
    return {
        "layers": names,
        "means": ["not in this graph" if np.isnan(mean) else f"{mean:.2%}" for mean in means],
        "rows": [
            {
                "token": name,
                "cells": [
                    {"words": "–" if np.isnan(value) else f"{value:.1%}", "strength": _strength(value, largest)}
                    for value in differences[:, index]
                ],
            }
            for index, name in enumerate(reading.tokens)
        ],
        "worst": f"“{reading.tokens[token]}” after {names[layer]}: {largest:.1%}" if known else "",
    }


def _strength(value: float, largest: float) -> float:
    return 0.0 if np.isnan(value) or not largest else round(_STRONGEST * float(value) / largest, 1)


def _script_data(look: Look) -> Markup:
    """JSON for a `script` element: no character of it can end the element."""
    data = {
        "readings": [
            {
                "tokens": list(reading.tokens),
                "layers": 0 if reading.attention is None else int(reading.attention.shape[0]),
                "heads": 0 if reading.attention is None else int(reading.attention.shape[1]),
                "attention": None if reading.attention is None else _bytes(reading.attention),
            }
            for reading in look.readings
        ],
        "states": layer_names(look.readings[0]),
        "similarity": [_bytes((matrix + 1) / 2) for matrix in _similarities(look.readings)],
    }
    text = json.dumps(data, ensure_ascii=True)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)  # noqa: S704  (escaped above)


def _similarities(readings: Sequence[Reading]) -> list[Array]:
    """For each layer the cosines of all tokens of all texts with one another."""
    matrices = []
    for states in zip(*(reading.states for reading in readings), strict=True):
        vectors = np.concatenate(states).astype(np.float64)
        unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        matrices.append(unit @ unit.T)
    return matrices


def _bytes(shares: Array) -> str:
    """Numbers from 0 to 1 as bytes, in base64: steps of 0.4 % are enough to draw."""
    return base64.b64encode(np.rint(np.clip(shares, 0, 1) * 255).astype(np.uint8).tobytes()).decode()


def _asset(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")
