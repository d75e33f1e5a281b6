# The gateway alone: no torch, no engines.
#   docker build -t trimaran-gateway -f deploy/gateway.Dockerfile .
FROM python:3.12-slim
COPY deploy/requirements-gateway.txt /opt/trimaran/
RUN pip install --no-cache-dir -r /opt/trimaran/requirements-gateway.txt
COPY pyproject.toml README.md LICENSE /src/
COPY trimaran /src/trimaran
RUN pip install --no-cache-dir --no-deps /src
ENV TRIMARAN_HOME=/tmp/trimaran
USER 1000:1000
EXPOSE 8080
ENTRYPOINT ["trimaran"]
