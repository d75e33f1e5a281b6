"""Who is compared: one row a peer and variant, each in the environment that its requirements file makes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
ENVIRONMENTS = ROOT / ".envs"
REFERENCE = "sentence-transformers torch"


@dataclass(frozen=True)
class Peer:
    """One library in one setting."""

    name: str
    # The module beside this one that opens it.
    script: str
    # The requirements file beside this one and the folder under `.envs`; None is our own environment.
    environment: str | None
    # The distribution whose version is shown.
    library: str
    # What it runs, for the page.
    describe: str
    # Keyword arguments of the script's `prepare` and `Peer`.
    options: dict[str, Any] = field(default_factory=dict)
    # A server, which is also put under load.
    served: bool = False

    @property
    def python(self) -> Path | None:
        return ENVIRONMENTS / self.environment / "bin" / "python" if self.environment else None

    @property
    def work(self) -> str:
        """The folder of what it prepares."""
        return self.name.replace(" ", "-").replace(",", "")


_ST = ("peer_sentence_transformers", "sentence-transformers", "sentence-transformers")
_ST_ONNX = ("peer_sentence_transformers", "sentence-transformers-onnx", "sentence-transformers")
_GENAI = ("peer_openvino_genai", "openvino-genai", "openvino-genai")

PEERS: tuple[Peer, ...] = (
    Peer(REFERENCE, *_ST, "PyTorch fp32, in process", {"backend": "torch"}),
    Peer("sentence-transformers onnx", *_ST_ONNX, "ONNX Runtime fp32, in process", {"backend": "onnx"}),
    Peer("sentence-transformers onnx-int8", *_ST_ONNX, "ONNX Runtime, dynamic INT8 for AVX-512 VNNI, in process",
         {"backend": "onnx", "int8": "avx512_vnni"}),
    Peer("sentence-transformers openvino", *_ST, "OpenVINO, fp32 weights at its default precision, in process",
         {"backend": "openvino"}),
    Peer("sentence-transformers openvino-int8", *_ST, "OpenVINO, static INT8, in process",
         {"backend": "openvino", "int8": "static"}),
    Peer("optimum-intel int8", "peer_optimum_intel", "optimum-intel", "optimum-intel",
         "OpenVINO, static INT8 with SmoothQuant, in process"),
    Peer("fastembed", "peer_fastembed", "fastembed", "fastembed", "ONNX Runtime fp32 with the same weights, in process",
         {"exported": "sentence-transformers-onnx"}),
    Peer("ctranslate2 int8", "peer_ctranslate2", "ctranslate2", "ctranslate2",
         "CTranslate2, INT8 with scales by token, padding left out, in process", {"compute": "int8"}),
    Peer("torchao int8", "peer_torchao", "torchao", "torchao",
         "PyTorch, dynamic INT8 with torch.compile, in process"),
    Peer("openvino-genai int8-weights", *_GENAI, "OpenVINO with INT8 weights, tokenizer in C++, in process",
         {"int8": "weights"}),
    Peer("openvino-genai int8-static", *_GENAI, "OpenVINO, NNCF's static INT8, tokenizer in C++, in process",
         {"int8": "static"}),
    Peer("infinity torch", "peer_infinity", "infinity", "infinity-emb", "PyTorch fp32, its own server over HTTP",
         {"engine": "torch"}, served=True),
    Peer("transformers pipeline", "peer_web_pipeline", "infinity", "transformers",
         "PyTorch fp32, behind FastAPI over HTTP", served=True),
)  # fmt: skip
