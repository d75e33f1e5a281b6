# A Triton for CPUs under `trimaran serve`: watchdog, digest checks, canaries. Without torch and without exporters.
#   docker build -t trimaran-cpu -f deploy/cpu.Dockerfile .
#   docker run --read-only --cap-drop ALL --tmpfs /tmp --shm-size 1g -v /path/to/model_repository:/models:ro trimaran-cpu
ARG BASE=python:3.12-slim
FROM ${BASE} AS build
RUN python3 -m venv /opt/trimaran
ENV PATH=/opt/trimaran/bin:$PATH
COPY deploy/requirements-cpu.txt /src/
RUN pip install --no-cache-dir --require-hashes -r /src/requirements-cpu.txt
COPY pyproject.toml README.md LICENSE constraints.txt /src/
COPY trimaran /src/trimaran
# Built by the setuptools of the requirements: a build of its own would fetch one without a hash.
RUN pip install --no-cache-dir --no-deps --no-build-isolation --no-index /src
# The backends are programs. Where the image runs, no folder that can be written may hold programs.
RUN python -c "from pathlib import Path; from trimaran.serving.triton import installation; \
    installation.find().place_backends(Path('/opt/trimaran/backends'))"
# What nothing here imports: plugins for other devices, downloads, and the installer itself.
RUN cd /opt/trimaran/lib/python3*/site-packages && rm -rf pip pip-*.dist-info hf_xet gevent \
    openvino/libs/libopenvino_intel_gpu_plugin.so openvino/libs/libopenvino_intel_npu_plugin.so \
    openvino/libs/libopenvino_intel_npu_compiler*.so openvino/libs/cache.json

FROM ${BASE}
COPY --from=build /opt/trimaran /opt/trimaran
ENV PATH=/opt/trimaran/bin:$PATH TRIMARAN_BACKENDS=/opt/trimaran/backends TRIMARAN_HOME=/tmp/trimaran \
    PYTHONDONTWRITEBYTECODE=1 ORT_DISABLE_TELEMETRY=1
USER 1000:1000
EXPOSE 8000 8001 8002
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/v2/health/ready', timeout=3)"]
ENTRYPOINT ["trimaran"]
# The network of the container decides who reaches it: publish the gateway's port, not these.
CMD ["serve", "/models", "--host", "0.0.0.0", "--log", "-"]
