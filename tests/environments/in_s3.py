"""Run in an environment that has moto and s3fs: `in_s3.py REPOSITORY MODEL`, prints JSON.

The repository is put into a bucket of a stand-in for S3. Triton serves it from there. `verify`, the gateway and `pull`
read it there too.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from moto.server import ThreadedMotoServer

from trimaran.serving.triton import installation, ports

MODEL = sys.argv[2]


def upload(repository: Path, server: str) -> str:
    import boto3

    client = boto3.client("s3", endpoint_url=server)
    client.create_bucket(Bucket="bucket")
    for path in repository.rglob("*"):
        if path.is_file():
            client.upload_file(str(path), "bucket", f"models/{path.relative_to(repository)}")
    return f"s3://{server}/bucket/models"


@contextlib.contextmanager
def triton(url: str, folder: Path):
    """The plain server, as its own image would start it: nothing of it is on this machine's disk."""
    found, chosen = installation.find(), ports.choose(http=None, grpc=None, metrics=None)
    found.place_backends(folder / "backends")
    command = [str(found.binary), f"--model-repository={url}", "--model-control-mode=explicit", f"--load-model={MODEL}"]
    command += ["--disable-auto-complete-config", f"--backend-directory={folder / 'backends'}"]
    command += [f"--{kind}-port={port}" for kind, port in chosen._asdict().items()]
    command += [f"--{kind}-address=127.0.0.1" for kind in ("http", "grpc", "metrics")]
    secrets = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    with (folder / "triton.log").open("wb") as log:
        process = subprocess.Popen(command, env={**found.environment(), **secrets}, stdout=log, stderr=log)
        try:
            wait_for(f"http://127.0.0.1:{chosen.http}/v2/models/{MODEL}/ready", process, folder / "triton.log")
            yield f"127.0.0.1:{chosen.grpc}"
        finally:
            process.terminate()
            process.wait()


def wait_for(url: str, process: subprocess.Popen, log: Path) -> None:
    while process.poll() is None:
        with contextlib.suppress(OSError):
            urllib.request.urlopen(url, timeout=5).close()
            return
        time.sleep(0.2)
    raise RuntimeError(log.read_text(errors="replace")[-3000:])


def trimaran(*words: str) -> dict:
    command = [sys.executable, "-m", "trimaran", *words, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return {"exit": done.returncode, "said": json.loads(done.stdout or "{}"), "error": done.stderr[-2000:]}


def embedding_by_gateway(url: str, grpc: str) -> list[float]:
    command = [sys.executable, "-m", "trimaran", "gateway", "--repository", url, "--url", grpc, "--port", "0"]
    process = subprocess.Popen([*command, "--no-auth", "--json"], stdout=subprocess.PIPE, text=True)
    try:
        place = json.loads(process.stdout.readline())["url"]
        body = json.dumps({"model": MODEL, "input": "the cat sat"}).encode()
        request = urllib.request.Request(f"{place}/v1/embeddings", body, {"Content-Type": "application/json"})
        for _ in range(100):
            with contextlib.suppress(OSError):
                answer = json.load(urllib.request.urlopen(request, timeout=20))
                return answer["data"][0]["embedding"]
            time.sleep(0.2)
        raise RuntimeError("the gateway never answered")
    finally:
        process.terminate()
        process.wait()


def main() -> None:
    os.environ |= {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any", "AWS_DEFAULT_REGION": "us-east-1"}
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as stack:
        stack.callback(server.stop)
        url = upload(Path(sys.argv[1]), f"http://{host}:{port}")
        grpc = stack.enter_context(triton(url, Path(scratch)))
        found = {
            "verify": trimaran("verify", grpc, "-r", url),
            "absent": trimaran("verify", grpc, "-r", f"s3://http://{host}:{port}/nothing/models"),
            "pull": trimaran("pull", url, "-r", f"{scratch}/pulled"),
            "check": trimaran("repository", "check", f"{scratch}/pulled"),
            "serve": trimaran("serve", url),
            "embedding": embedding_by_gateway(url, grpc),
        }
    sys.stdout.write(json.dumps(found) + "\n")


main()
