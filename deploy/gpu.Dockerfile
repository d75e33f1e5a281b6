# Triton for GPUs: finishes what `trimaran deploy --target` prepared, and then serves it.
#   docker build -t trimaran-triton-gpu -f deploy/gpu.Dockerfile .
# Release and wheel are one row of trimaran/core/gpu_release.py: a plan opens only in the TensorRT that built it.
ARG TRITON=26.08
ARG BASE=nvcr.io/nvidia/tritonserver:${TRITON}-py3
FROM ${BASE}
COPY deploy/requirements-finish.txt /opt/trimaran/
RUN pip install --no-cache-dir --break-system-packages --require-hashes -r /opt/trimaran/requirements-finish.txt
# PyPI has an installer of TensorRT's libraries only, which fetches them from NVIDIA: no hash of ours covers them.
ARG TENSORRT=tensorrt==11.2.1.*
RUN pip install --no-cache-dir --break-system-packages "${TENSORRT}"
COPY pyproject.toml README.md LICENSE constraints.txt /src/
COPY trimaran /src/trimaran
RUN pip install --no-cache-dir --break-system-packages --no-deps --no-build-isolation --no-index /src
COPY --chmod=755 deploy/finish-and-serve /usr/local/bin/
# A new volume that is mounted there takes over these rights: whoever serves may keep plans in it.
RUN install -d -m 1777 /plans
ENV ORT_DISABLE_TELEMETRY=1 TRIMARAN_HOME=/plans/home
USER 1000:1000
# NVIDIA's own entry point first: for an older driver it puts the newer driver library of the image on the path.
ENTRYPOINT ["/opt/nvidia/nvidia_entrypoint.sh", "finish-and-serve"]
