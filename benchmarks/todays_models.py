"""Tiny models of today's families: deployed at `strict`, served on the real Triton, held against their own library.

    python benchmarks/todays_models.py [--only NAME ...] [-o benchmarks/results/todays-models.json]

Each model has random weights and goes through `trimaran deploy --fidelity strict` twice: once as the fp32 graph, once
as INT8. Both are served, and asked the same as sentence-transformers: queries and documents with their prompts,
Chinese, emoji, empty and blank texts, texts that are too long, pairs. fp32 must answer within 1e-5, INT8 must keep its
gates. The result is written after each model; a second run goes on where the first one ended. Exit 1 when a claim does
not hold.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from experiment import RESULTS, ROOT, distance, finish, options

from trimaran.core.corpus import shipped_texts
from trimaran.serving.client import Client
from trimaran.serving.triton.server import launch

# The tiny models are those of the tests.
sys.path.insert(0, str(ROOT))
from tests.commands import trimaran_here
from tests.export import zoo
from tests.export.late_interaction import library as late_library
from tests.export.late_interaction import saved_late
from tests.export.test_hybrid import as_flag_embedding
from tests.export.test_rerankers import _cross_encoder, _generator
from tests.export.test_static import _folder as static_folder
from tests.homes import home_at
from tests.workers import workers_in_this_process

OUTPUT = RESULTS / "todays-models.json"
# The limit of fp32, and `mean_cosine_distance` at strict.
ATOL, INT8_LIMIT = 1e-5, 1.2e-3
PROMPTS = {"query": "Instruct: find a text\nQuery: ", "document": "text: "}
TEXTS = [
    "A short one.",
    "今天天气很好，我们去公园吧。",
    "pizza 🍕🍕 and 👩‍👩‍👧",
    "",
    " \n ",
    *shipped_texts("judging")[::83],
    "far too long " * 60,
]
QUERY, DOCUMENTS = "Where is the boat? 🚤", ["In the harbour.", "", "今天天气很好", " spaces \n", "far too long " * 60]
DECODERS = (
    "qwen3", "qwen2", "llama", "mistral", "ministral3", "smollm3", "granite", "phi3", "lfm2", "gemma", "gemma2",
    "gemma3_text", "olmo2", "modernbert-decoder", "opt", "gpt_neox", "bloom",
)  # fmt: skip
ENCODERS = ("gte", "jina_embeddings_v3", "eurobert", "ultrabert", "t5gemma")
FORMS = {"fp32": ("onnxruntime-fp32",), "int8": ("openvino-int8-mixed", "--budget", "2")}
# Arrays in one order, however they were asked for.
Answers = list[np.ndarray]


@dataclass(frozen=True)
class Row:
    name: str
    # Writes the model's folder.
    saved: Callable[[Path], object]
    # What the library answers for a folder, and what a served model answers.
    library: Callable[[Path], Answers]
    served: Callable[[Client, str], Answers]


def sentence_folder(family: str, mode: str, *, dense: bool = False, **changes: Any) -> Callable[[Path], object]:
    def saved(folder: Path) -> None:
        import torch
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer

        plain = zoo.saved_model(folder.parent / f"{folder.name}-plain", family, "embedding", **changes)
        torch.manual_seed(3)
        parts: list[Any] = [Transformer(str(plain), max_seq_length=64), Pooling(32, pooling_mode=mode)]
        parts += [Dense(32, 24, activation_function=torch.nn.Identity())] if dense else []
        model = SentenceTransformer(modules=[*parts, Normalize()], prompts=PROMPTS, device="cpu")
        model.save(str(folder))

    return saved


def encoded(folder: Path) -> Answers:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu")
    return [row for prompt in (None, *model.prompts) for row in model.encode(TEXTS, batch_size=4, prompt_name=prompt)]


def embedded(client: Client, name: str) -> Answers:
    return [row for prompt in (None, *PROMPTS) for row in client.embed(name, TEXTS, prompt=prompt)]


def ranked(folder: Path) -> Answers:
    model = _cross_encoder(folder)
    rows = []
    for instruction in (None, "Find a harbour"):
        found = model.rank(QUERY, DOCUMENTS, prompt=instruction)
        rows.append(np.array([row["score"] for row in sorted(found, key=lambda row: row["corpus_id"])]))
    return rows


def reranked(client: Client, name: str) -> Answers:
    asked = [client.rerank(name, QUERY, DOCUMENTS, instruction=words) for words in (None, "Find a harbour")]
    return [np.array([score for _, score in sorted(found)]) for found in asked]


def by_formulas(folder: Path) -> Answers:
    rows = []
    for text in TEXTS:
        answer = as_flag_embedding(folder, text)
        rows += [answer["dense"], over_vocabulary(answer["sparse"]), answer["colbert"]]
    return rows


def in_one_pass(client: Client, name: str) -> Answers:
    rows = []
    for answer in client.hybrid(name, TEXTS):
        weights = dict(zip(answer.sparse.ids, answer.sparse.weights, strict=True))
        rows += [answer.dense, over_vocabulary(weights), answer.colbert.vectors]
    return rows


def over_vocabulary(weights: Mapping[Any, float]) -> np.ndarray:
    """Weights of tokens as one vector: a weight near zero may be missing on one side."""
    vector = np.zeros(zoo.VOCABULARY)
    vector[np.array(list(weights), int)] = list(weights.values())
    return vector


def late_scores(folder: Path) -> Answers:
    model = late_library(folder)
    return [np.asarray(model.similarity(model.encode_query([QUERY]), model.encode_document(TEXTS)))[0]]


def scored(client: Client, name: str) -> Answers:
    return [np.asarray(client.score(name, QUERY, TEXTS))]


def rows() -> list[Row]:
    gemma = sentence_folder("gemma3_text", "mean", dense=True, use_bidirectional_attention=True)
    return [
        *(Row(name, sentence_folder(name, "lasttoken"), encoded, embedded) for name in DECODERS),
        *(Row(name, sentence_folder(name, "mean"), encoded, embedded) for name in ENCODERS),
        Row("qwen3-bidirectional", sentence_folder("qwen3", "mean", is_causal=False), encoded, embedded),
        Row("embeddinggemma", gemma, encoded, embedded),
        Row("reranker-by-words", saved_reranker, ranked, reranked),
        Row("reranker-by-head", saved_classifier, scored_pairs, reranked_plainly),
        Row(
            "bge-m3",
            lambda folder: zoo.saved_model(folder, "xlm-roberta", "hybrid-embedding"),
            by_formulas,
            in_one_pass,
        ),
        Row("static", lambda folder: static_folder(folder, "sentence-transformers"), encoded, embedded),
        Row("colbert", lambda folder: saved_late(folder, family="modernbert"), late_scores, scored),
    ]


def saved_reranker(folder: Path) -> None:
    import torch

    model = _cross_encoder(_generator(folder.parent / f"{folder.name}-plain"), activation_fn=torch.nn.Identity())
    model[0].processing_kwargs = {"chat_template": {"add_generation_prompt": True}}
    model.save_pretrained(str(folder))


def saved_classifier(folder: Path) -> None:
    plain = zoo.saved_model(folder.parent / f"{folder.name}-plain", "qwen3", "rerank")
    _cross_encoder(plain).save_pretrained(str(folder))


def scored_pairs(folder: Path) -> Answers:
    found = _cross_encoder(folder).rank(QUERY, DOCUMENTS)
    return [np.array([row["score"] for row in sorted(found, key=lambda row: row["corpus_id"])])]


def reranked_plainly(client: Client, name: str) -> Answers:
    return [np.array([score for _, score in sorted(client.rerank(name, QUERY, DOCUMENTS))])]


def tried(row: Row, folder: Path) -> dict[str, Any]:
    """What became of one model in both forms."""
    begun_s = time.process_time()
    row.saved(folder / row.name)
    deployments = {form: deployed(row.name, form, flags, folder) for form, flags in FORMS.items()}
    wanted = row.library(folder / row.name)
    served = [form for form, found in deployments.items() if found["verdict"] == "chosen"]
    if served:
        with launch(folder / "repository", drain=False) as server, Client(server.grpc_url) as client:
            for form in served:
                deployments[form] |= compared(row.served(client, f"{row.name}-{form}"), wanted)
    return {**deployments, "answers": len(wanted), "cpu_seconds": round(time.process_time() - begun_s, 1)}


def deployed(name: str, form: str, flags: Sequence[str], folder: Path) -> dict[str, Any]:
    candidate, *further = flags
    command = [
        "deploy", "-m", folder / name, "--name", f"{name}-{form}", "--fidelity", "strict", "--candidates", candidate,
        *further, "--quick", "--busy-ok", "--no-serve-check", "-o", folder / "repository", "--json",
        *(["--task", "rerank"] if name.startswith("reranker") else []),
    ]  # fmt: skip
    with workers_in_this_process():
        done = trimaran_here(*command, home=folder / "home", cwd=folder)
    if done.returncode not in (0, 4):
        sys.exit(f"{name} as {form}: {done.stderr}")
    if done.returncode:
        return {"verdict": "rejected", "reason": " ".join(done.stderr.split())[-400:]}
    (found,) = (entry for entry in json.loads(done.stdout)["candidates"] if entry["name"] == candidate)
    return {"verdict": found["verdict"], "gates": found["quality"]["gates"]}


def compared(found: Answers, wanted: Answers) -> dict[str, Any]:
    """Of all answers: the largest difference of a number, and the largest and the mean 1−cos of vectors."""
    pairs = list(zip(found, wanted, strict=True))
    shapes = all(mine.shape == theirs.shape for mine, theirs in pairs)
    if not shapes:
        return {"same_shapes": False}
    distances = [distance(mine.ravel(), theirs.ravel()) for mine, theirs in pairs if np.abs(theirs).max(initial=0) > 0]
    return {
        "same_shapes": True,
        "max_difference": max(float(np.abs(mine - theirs).max(initial=0)) for mine, theirs in pairs),
        "mean_distance": float(np.mean(distances)),
        "worst_distance": float(np.max(distances)),
    }


def claims(models: Mapping[str, Any]) -> dict[str, bool]:
    fp32 = [model["fp32"] for model in models.values()]
    return {
        "every model is deployed in fp32 at strict": all(found["verdict"] == "chosen" for found in fp32),
        f"served fp32 answers as the library within {ATOL:g}": all(
            found.get("same_shapes") and found["max_difference"] <= ATOL for found in fp32
        ),
        f"INT8 is refused, or served with a mean 1−cos to the library of at most {INT8_LIMIT:g}": all(
            found["verdict"] == "rejected" or (found["same_shapes"] and found["mean_distance"] <= INT8_LIMIT)
            for found in (model["int8"] for model in models.values())
        ),
    }


def main() -> int:
    parser = options(__doc__, output=OUTPUT)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these models, tried anew")
    asked = parser.parse_args()
    known = json.loads(asked.output.read_text(encoding="utf-8"))["models"] if asked.output.is_file() else {}
    wanted = asked.only or [row.name for row in rows() if row.name not in known]
    code = 0
    for row in (row for row in rows() if row.name in wanted):
        with tempfile.TemporaryDirectory(prefix="trimaran-today-") as scratch, home_at(Path(scratch) / "home"):
            known[row.name] = tried(row, Path(scratch))
        print(row.name, json.dumps({form: known[row.name][form] for form in FORMS})[:300], file=sys.stderr)
        order = [other.name for other in rows() if other.name in known]
        code = finish(
            {"models": {name: known[name] for name in order}, "claims": claims(known)}, asked.output, hidden=["models"]
        )
    return code


if __name__ == "__main__":
    sys.exit(main())
