"""Run in an environment that has Ray Serve: `in_ray_serve.py REPOSITORY MODEL`, prints JSON.

Two replicas answer calls over HTTP. One of them is killed, and calls that are repeated are still answered.
"""

import contextlib
import json
import os
import socket
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ray
from ray import serve

RECIPES = Path(__file__).parents[2] / "examples" / "recipes"
sys.path.insert(0, str(RECIPES))

import ray_serve  # noqa: E402

TEXTS = ["the cat sat", "dog ran", "good good dog", "bad cat"]


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def ask(port: int, texts: object) -> list[list[float]]:
    body = json.dumps({"input": texts}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/", body, {"Content-Type": "application/json"})
    for _ in range(100):
        with contextlib.suppress(OSError):
            rows = json.load(urllib.request.urlopen(request, timeout=60))["data"]
            return [row["embedding"] for row in rows]
        time.sleep(0.2)
    raise RuntimeError("Ray Serve never answered")


def replicas() -> list[dict[str, str]]:
    """The named actors of the deployment, as `ray.get_actor` takes them."""
    return [actor for actor in ray.util.list_named_actors(all_namespaces=True) if "#Embeddings#" in actor["name"]]


def main() -> None:
    repository, model = sys.argv[1:]
    port = free_port()
    variables = {"PYTHONPATH": f"{RECIPES}:{os.environ['PYTHONPATH']}", "TRIMARAN_HOME": os.environ["TRIMARAN_HOME"]}
    ray.init(num_cpus=3, include_dashboard=False, runtime_env={"env_vars": variables})
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    serve.run(ray_serve.app({"model": model, "repository": repository, "replicas": "2"}))
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda number: ask(port, TEXTS[number % len(TEXTS)])[0], range(64)))
    found = {"list": ask(port, TEXTS), "together": together[: len(TEXTS)], "replicas": len(replicas())}
    ray.kill(ray.get_actor(**replicas()[0]))
    found["after a kill"] = ask(port, TEXTS)
    serve.shutdown()
    ray.shutdown()
    sys.stdout.write(json.dumps(found) + "\n")


main()
