"""The values that a user chooses from, each defined once.

The command line reads them at every start, so this module imports nothing but `typing`.
"""

from __future__ import annotations

from typing import Literal

# How close to eager PyTorch a candidate must stay.
Level = Literal["exact", "strict", "balanced"]
# What the fastest means.
Objective = Literal["latency", "throughput"]
TuneObjective = Literal["balanced", "latency", "throughput"]
# Which rows may share a call of the engine.
Rows = Literal["padded", "packed", "rounded", "equal-length", "alone"]
Exporter = Literal["torchscript", "dynamo"]
# How to talk to Triton.
Protocol = Literal["grpc", "http"]
# The metrics of labelled data.
LabelMetric = Literal["spearman", "accuracy", "f1", "exact-match"]
HardwareCompatible = Literal["NONE", "AMPERE_PLUS", "SAME_COMPUTE_CAPABILITY"]
CiPlatform = Literal["github", "gitlab", "make"]
# Of `trimaran encode`: what is read, what is written, and what does the work.
InputKind = Literal["txt", "jsonl", "csv", "tsv", "parquet"]
PartFormat = Literal["parquet", "npy", "faiss", "jsonl"]
VectorDType = Literal["fp32", "fp16", "int8", "calibrated-int8", "calibrated-uint8", "binary", "ubinary"]
EngineName = Literal["local", "ray"]
# What becomes of texts that are longer than a model reads: cut, or the mean or maximum over pieces.
Overflow = Literal["cut", "windows", "windows-max"]
# Of `trimaran index`.
IndexKind = Literal["flat", "ivf", "ivfpq", "hnsw", "binary"]
ExportTarget = Literal["milvus", "elasticsearch"]

# Seconds to search for the layers that must stay in float; a small encoder needs less.
BUDGET_S = 90.0
# The images that deploy/ builds: Triton with what the Python stages import, and the gateway.
TRITON_IMAGE = "trimaran-triton"
GPU_IMAGE = "trimaran-triton-gpu"
GATEWAY_IMAGE = "trimaran-gateway"
CPU_IMAGE = "trimaran-cpu"
# The most items of a list in a request to the gateway: no limit of texts is above it.
MOST_TEXTS = 65_536
# The most probable tokens that an exported fill-mask model gives for a mask.
FILLINGS_A_MASK = 10
