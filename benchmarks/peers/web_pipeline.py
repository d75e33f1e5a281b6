"""The web application of `peer_web_pipeline`: a transformers pipeline as its documentation shows, behind FastAPI."""

import os

import numpy as np
import torch
from fastapi import FastAPI
from pydantic import BaseModel
from transformers import pipeline

torch.set_num_threads(int(os.environ["PIPELINE_THREADS"]))
extract = pipeline("feature-extraction", model=os.environ["PIPELINE_MODEL"], device="cpu")
app = FastAPI()


class Asked(BaseModel):
    model: str
    input: list[str]


@app.get("/health")
def health() -> dict[str, str]:
    return {"status": "ok"}


@app.post("/v1/embeddings")
def embeddings(asked: Asked) -> dict[str, list[dict[str, list[float]]]]:
    """One text at a time, as the pipeline does unless it is told a batch size; no padding, so a plain mean."""
    found = extract(asked.input, tokenize_kwargs={"truncation": True, "max_length": 256})
    vectors = [np.mean(tokens[0], axis=0) for tokens in found]
    return {"data": [{"embedding": (vector / np.linalg.norm(vector)).tolist()} for vector in vectors]}
