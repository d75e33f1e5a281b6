# Triton for GPUs under `trimaran serve`: finishes what `trimaran deploy --target` prepared, and then serves it.
#   docker build -t trimaran-triton-gpu -f deploy/gpu.Dockerfile .
# Release and wheel are one row of trimaran/core/gpu_release.py: a plan opens only in the TensorRT that built it.
ARG TRITON=26.08
ARG BASE=nvcr.io/nvidia/tritonserver:${TRITON}-py3
FROM ${BASE}
COPY deploy/requirements-finish.txt /src/
RUN pip install --no-cache-dir --break-system-packages --require-hashes -r /src/requirements-finish.txt
# PyPI has an installer of TensorRT's libraries only, which fetches them from NVIDIA: no hash of ours covers them.
ARG TENSORRT=tensorrt==11.2.1.*
RUN pip install --no-cache-dir --break-system-packages "${TENSORRT}"
COPY pyproject.toml README.md LICENSE constraints.txt /src/
COPY trimaran /src/trimaran
# Built by the setuptools of the requirements: a build of its own would fetch one without a hash.
RUN pip install --no-cache-dir --break-system-packages --no-deps --no-build-isolation --no-index /src && rm -rf /src
COPY --chmod=755 deploy/finish-and-serve /usr/local/bin/
# A new volume that is mounted there takes over these rights: whoever serves may keep plans in it.
RUN install -d -m 1777 /plans
# The Triton of the image, with its own backends: they are programs, and no folder that can be written holds programs.
ENV TRIMARAN_TRITON=/opt/tritonserver TRIMARAN_HOME=/plans/home PYTHONDONTWRITEBYTECODE=1 ORT_DISABLE_TELEMETRY=1
USER 1000:1000
EXPOSE 8000 8001 8002
HEALTHCHECK --interval=10s --timeout=5s --start-period=30m \
    CMD ["python3", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/v2/health/ready', timeout=3)"]
# NVIDIA's own entry point first: for an older driver it puts the newer driver library of the image on the path.
ENTRYPOINT ["/opt/nvidia/nvidia_entrypoint.sh", "finish-and-serve"]
# The network of the container decides who reaches it: publish the gateway's port, not these.
CMD ["trimaran", "serve", "/plans/models", "--host", "0.0.0.0", "--log", "-", "--start-timeout", "1800"]
