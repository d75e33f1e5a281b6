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
# What nothing here imports: the installer, downloads, OpenVINO's plugins for other devices and readers of other
# formats, ONNX Runtime for C programs and its tools, Triton's stubs for other Pythons, and tests.
RUN cd /opt/trimaran/lib/python3*/site-packages && rm -rf pip pip-* setuptools setuptools-* _distutils_hack \
    distutils-precedence.pth hf_xet huggingface_hub gevent greenlet zope \
    openvino/libs/libopenvino_intel_[gn]pu_* openvino/libs/cache.json openvino/include openvino/cmake openvino/torch \
    openvino/libs/libopenvino_gguf_* openvino/libs/libopenvino_jax_* openvino/libs/libopenvino_paddle_* \
    openvino/libs/libopenvino_pytorch_* openvino/libs/libopenvino_tensorflow_* openvino/frontend/[jpt]*/ \
    onnxruntime/capi/libonnxruntime.so.* onnxruntime/transformers onnxruntime/tools onnxruntime/quantization \
    nvidia_pytriton.libs/libpython3* && \
    find . -name tests -type d -prune -exec rm -rf {} + && \
    find pytriton/tritonserver/python_backend_stubs -mindepth 1 -maxdepth 1 \
    ! -name "$(python -c 'import sys; print("%d.%d" % sys.version_info[:2])')" -exec rm -rf {} +

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
