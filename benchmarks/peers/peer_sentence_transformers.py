"""sentence-transformers with its torch, ONNX and OpenVINO backends, plain and INT8, used as its documentation shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def prepare(model: Path, work: Path, *, texts: list[str], backend: str, int8: str = "") -> None:
    """Exports once. `int8` names the instruction set for ONNX; for OpenVINO it is "static"."""
    if backend == "torch":
        return
    from sentence_transformers import SentenceTransformer

    loaded = SentenceTransformer(str(model), backend=backend, device="cpu", local_files_only=True)
    loaded.save_pretrained(str(work))
    if int8 and backend == "onnx":
        from sentence_transformers import export_dynamic_quantized_onnx_model

        export_dynamic_quantized_onnx_model(loaded, int8, str(work))
    elif int8:
        from sentence_transformers import export_static_quantized_openvino_model

        data = work / "calibration"
        data.mkdir(exist_ok=True)
        rows = "".join(json.dumps({"sentence": text}) + "\n" for text in texts)
        (data / "train.jsonl").write_text(rows, encoding="utf-8")
        # Its default calibrates on a data set of the hub; the same call on a folder of texts needs no network.
        export_static_quantized_openvino_model(
            loaded,
            quantization_config=None,
            model_name_or_path=str(work),
            dataset_name=str(data),
            dataset_config_name="default",
            dataset_split="train",
            column_name="sentence",
        )


class Peer:
    def __init__(self, model: Path, work: Path, *, threads: int, backend: str, int8: str = "") -> None:
        from sentence_transformers import SentenceTransformer

        self._model = SentenceTransformer(
            str(model if backend == "torch" else work),
            backend=backend,
            device="cpu",
            local_files_only=True,
            model_kwargs=_OPTIONS[backend](threads, int8),
        )

    def encode(self, texts: list[str]) -> Any:
        return self._model.encode(texts, batch_size=32, show_progress_bar=False, convert_to_numpy=True)


def _torch(threads: int, int8: str) -> dict[str, Any]:
    import torch

    torch.set_num_threads(threads)
    return {}


def _onnx(threads: int, int8: str) -> dict[str, Any]:
    import onnxruntime

    session = onnxruntime.SessionOptions()
    session.intra_op_num_threads = threads
    file = f"onnx/model_qint8_{int8}.onnx" if int8 else "onnx/model.onnx"
    return {"file_name": file, "provider": "CPUExecutionProvider", "session_options": session}


def _openvino(threads: int, int8: str) -> dict[str, Any]:
    file = {"file_name": "openvino/openvino_model_qint8_quantized.xml"} if int8 else {}
    return {"ov_config": {"INFERENCE_NUM_THREADS": str(threads)}, **file}


_OPTIONS = {"torch": _torch, "onnx": _onnx, "openvino": _openvino}
