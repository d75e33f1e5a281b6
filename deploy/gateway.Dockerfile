# The gateway alone: no torch, no engines.
#   docker build -t trimaran-gateway -f deploy/gateway.Dockerfile .
FROM python:3.12-slim
COPY deploy/requirements-gateway.txt /opt/trimaran/
RUN pip install --no-cache-dir --require-hashes -r /opt/trimaran/requirements-gateway.txt
COPY pyproject.toml README.md LICENSE constraints.txt /src/
COPY trimaran /src/trimaran
# Built by the setuptools of the requirements: a build of its own would fetch one without a hash.
RUN pip install --no-cache-dir --no-deps --no-build-isolation --no-index /src
ENV TRIMARAN_HOME=/tmp/trimaran
USER 1000:1000
EXPOSE 8080
ENTRYPOINT ["trimaran"]
