# The gateway alone: no torch, no engines.
#   docker build -t trimaran-gateway -f deploy/gateway.Dockerfile .
ARG BASE=python:3.12-slim
FROM ${BASE} AS build
RUN python3 -m venv /opt/trimaran
ENV PATH=/opt/trimaran/bin:$PATH
COPY deploy/requirements-gateway.txt /src/
RUN pip install --no-cache-dir --require-hashes -r /src/requirements-gateway.txt
COPY pyproject.toml README.md LICENSE constraints.txt /src/
COPY trimaran /src/trimaran
# Built by the setuptools of the requirements: a build of its own would fetch one without a hash.
RUN pip install --no-cache-dir --no-deps --no-build-isolation --no-index /src
# What nothing here imports: the installer, downloads and tests.
RUN cd /opt/trimaran/lib/python3*/site-packages && rm -rf pip pip-* setuptools setuptools-* _distutils_hack \
    distutils-precedence.pth hf_xet huggingface_hub gevent greenlet zope && \
    find . -name tests -type d -prune -exec rm -rf {} +

FROM ${BASE}
COPY --from=build /opt/trimaran /opt/trimaran
ENV PATH=/opt/trimaran/bin:$PATH TRIMARAN_HOME=/tmp/trimaran PYTHONDONTWRITEBYTECODE=1
USER 1000:1000
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8080/readyz', timeout=3)"]
ENTRYPOINT ["trimaran"]
