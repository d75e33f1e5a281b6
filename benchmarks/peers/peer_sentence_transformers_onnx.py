"""sentence-transformers with its ONNX backend, plain and dynamically quantised, used as its documentation shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def prepare(model: Path, work: Path, *, texts: list[str], int8: str = "") -> None:
    from sentence_transformers import SentenceTransformer

    loaded = SentenceTransformer(str(model), backend="onnx", device="cpu", local_files_only=True)
    loaded.save_pretrained(str(work))
    if int8:
        from sentence_transformers import export_dynamic_quantized_onnx_model

        export_dynamic_quantized_onnx_model(loaded, int8, str(work))


class Peer:
    def __init__(self, model: Path, work: Path, *, threads: int, int8: str = "") -> None:
        import onnxruntime
        from sentence_transformers import SentenceTransformer

        session = onnxruntime.SessionOptions()
        session.intra_op_num_threads = threads
        self._model = SentenceTransformer(
            str(work),
            backend="onnx",
            device="cpu",
            local_files_only=True,
            model_kwargs={
                "file_name": f"onnx/model_qint8_{int8}.onnx" if int8 else "onnx/model.onnx",
                "provider": "CPUExecutionProvider",
                "session_options": session,
            },
        )

    def encode(self, texts: list[str]) -> Any:
        return self._model.encode(texts, batch_size=32, show_progress_bar=False, convert_to_numpy=True)
