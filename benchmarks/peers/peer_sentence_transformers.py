"""sentence-transformers with its torch and OpenVINO backends, used as its documentation shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

INT8 = "openvino/openvino_model_qint8_quantized.xml"


def prepare(model: Path, work: Path, *, texts: list[str], backend: str, int8: bool = False) -> None:
    if backend == "torch":
        return
    from sentence_transformers import SentenceTransformer

    loaded = SentenceTransformer(str(model), backend=backend, device="cpu", local_files_only=True)
    loaded.save_pretrained(str(work))
    if int8:
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
    def __init__(self, model: Path, work: Path, *, threads: int, backend: str, int8: bool = False) -> None:
        from sentence_transformers import SentenceTransformer

        options: dict[str, Any] = {}
        if backend == "torch":
            import torch

            torch.set_num_threads(threads)
        else:
            options["ov_config"] = {"INFERENCE_NUM_THREADS": str(threads)}
        if int8:
            options["file_name"] = INT8
        self._model = SentenceTransformer(
            str(model if backend == "torch" else work),
            backend=backend,
            device="cpu",
            local_files_only=True,
            model_kwargs=options,
        )

    def encode(self, texts: list[str]) -> Any:
        return self._model.encode(texts, batch_size=32, show_progress_bar=False, convert_to_numpy=True)
