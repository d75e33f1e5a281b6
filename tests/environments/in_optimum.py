"""Run in an environment that has optimum: exports folders, or opens them and prints what they answer.

`in_optimum.py onnx|openvino REQUESTS`: REQUESTS is JSON, a list of {"folder", "task", "texts", "export_to"}.
"""

import importlib
import json
import subprocess
import sys
from pathlib import Path

CLASSES = {
    "text-classification": "SequenceClassification",
    "rerank": "SequenceClassification",
    "token-classification": "TokenClassification",
    "question-answering": "QuestionAnswering",
    "feature-extraction": "FeatureExtraction",
    "embedding": "FeatureExtraction",
}
OUTPUTS = ("logits", "last_hidden_state", "start_logits", "end_logits")
LIBRARIES = {"onnx": ("optimum.onnxruntime", "ORTModelFor"), "openvino": ("optimum.intel", "OVModelFor")}


def answers(kind: str, folder: str, task: str, texts: list[str]) -> dict[str, list]:
    from transformers import AutoTokenizer

    module, prefix = LIBRARIES[kind]
    # Without the hint OpenVINO runs fp32 models in bf16 where the CPU advertises it.
    settings = {"ov_config": {"INFERENCE_PRECISION_HINT": "f32"}} if kind == "openvino" else {}
    model = getattr(importlib.import_module(module), prefix + CLASSES[task]).from_pretrained(folder, **settings)
    tokens = AutoTokenizer.from_pretrained(folder)(texts, return_tensors="pt", padding=True)
    found = model(**tokens)
    result = {name: getattr(found, name).tolist() for name in OUTPUTS if getattr(found, name, None) is not None}
    return {**result, "attention_mask": tokens["attention_mask"].tolist()}


def export(request: dict) -> None:
    """As a user does it: optimum's command, or sentence-transformers' ONNX backend."""
    if request["task"] == "embedding":
        from sentence_transformers import SentenceTransformer

        SentenceTransformer(request["folder"], backend="onnx", device="cpu").save_pretrained(request["export_to"])
        return
    command = [str(Path(sys.executable).parent / "optimum-cli"), "export", "onnx", "-m", request["folder"]]
    subprocess.run([*command, "--task", request["task"], request["export_to"]], check=True, capture_output=True)


def main() -> None:
    kind, requests = sys.argv[1], json.loads(sys.argv[2])
    results = []
    for request in requests:
        if "export_to" in request:
            export(request)
        else:
            results.append(answers(kind, request["folder"], request["task"], request["texts"]))
    sys.stdout.write(json.dumps(results) + "\n")


main()
