"""What is handed to other machines: sound by the published schemas, and with nothing missing and nothing extra."""

from __future__ import annotations

import ast
import itertools
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.commands import environment, trimaran_here, trimaran_json_here
from tests.tiny import tiny_artifact
from trimaran.core.choices import CPU_IMAGE, GPU_IMAGE
from trimaran.core.errors import UsageError
from trimaran.core.gpu_release import GPU_RELEASE
from trimaran.core.serving_json import read_serving, write_serving
from trimaran.model_repository.layout import lay_out
from trimaran.serving.container.image import (
    FINISHED_FOLDER,
    MODELS_FOLDER,
    NVIDIA_ENTRYPOINT,
    PORTS,
    served_model,
    served_models,
)
from trimaran.serving.triton.flags import EXIT_TIMEOUT_S
from trimaran.serving.triton.server import wanted_models

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
KINDS = {
    "ServiceAccount", "Deployment", "Service", "HorizontalPodAutoscaler", "PodDisruptionBudget", "NetworkPolicy",
}  # fmt: skip


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("deploy")
    artifact = tiny_artifact(folder / "s")
    lay_out(artifact, repository=folder / "r", name="My_Model.v2", rows="alone", threads=3)
    for path in (folder / "r" / "My_Model.v2" / "1").glob("serving.json"):
        settings = json.loads(path.read_text())
        settings["execution_environment"] = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_FP16"}
        path.write_text(json.dumps(settings))
    return folder / "r"


def rendered(repository: Path, *options: object) -> dict[str, dict[str, Any]]:
    done = trimaran_here(
        "kubernetes", "My_Model.v2", "--repository", repository, *options, home=repository.parent / "home"
    )
    assert done.returncode == 0, done.stderr
    assert "&id" not in done.stdout, "written out, for people to read"
    return {item["kind"]: item for item in yaml.safe_load_all(done.stdout)}


def containers(found: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    pod = found["Deployment"]["spec"]["template"]["spec"]
    return {container["name"]: container for container in pod["containers"]}


def test_every_object_keeps_the_published_schemas(repository: Path) -> None:
    from kubernetes_validate import utils

    found = rendered(repository)
    assert set(found) == KINDS
    for version in ("1.27", utils.latest_version()):
        for item in found.values():
            utils.validate(item, version, strict=True)


def test_a_wrong_object_would_be_noticed(repository: Path) -> None:
    from kubernetes_validate import utils

    wrong = rendered(repository)["Deployment"]
    wrong["spec"]["template"]["spec"]["containers"][0]["ports"][0]["containerPort"] = "metrics"
    with pytest.raises(utils.ValidationError):
        utils.validate(wrong, utils.latest_version(), strict=True)


def test_names_and_selectors_agree(repository: Path) -> None:
    found = rendered(repository, "--namespace", "models")
    chosen = {"app.kubernetes.io/name": "trimaran-my-model-v2"}
    assert {item["metadata"]["name"] for item in found.values()} == {"trimaran-my-model-v2"}
    assert {item["metadata"]["namespace"] for item in found.values()} == {"models"}
    assert found["Deployment"]["spec"]["selector"]["matchLabels"] == chosen
    assert chosen.items() <= found["Deployment"]["spec"]["template"]["metadata"]["labels"].items()
    assert found["Service"]["spec"]["selector"] == chosen
    for kind, field in (("PodDisruptionBudget", "selector"), ("NetworkPolicy", "podSelector")):
        assert found[kind]["spec"][field]["matchLabels"] == chosen
    assert found["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]["name"] == "trimaran-my-model-v2"


def test_triton_is_reachable_only_through_the_gateway(repository: Path) -> None:
    found = rendered(repository)
    triton, gateway = containers(found)["triton"], containers(found)["gateway"]
    # `serve` listens on the loopback unless it is told otherwise.
    assert triton["args"] == ["serve", "/models", "--model=My_Model.v2", "--metrics-host=0.0.0.0", "--log=-"]
    assert triton["image"] == CPU_IMAGE and "command" not in triton
    assert not [argument for argument in gateway["args"] if "no-auth" in argument]
    ports = {entry["port"] for rule in found["NetworkPolicy"]["spec"]["ingress"] for entry in rule["ports"]}
    assert ports == {8080, 8002}
    assert found["NetworkPolicy"]["spec"]["egress"] == []
    assert [port["targetPort"] for port in found["Service"]["spec"]["ports"]] == ["gateway"]


def test_a_pod_is_ready_by_the_canary_and_a_busy_triton_is_not_dead(repository: Path) -> None:
    found = containers(rendered(repository))
    assert found["gateway"]["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert found["gateway"]["livenessProbe"]["httpGet"]["path"] == "/healthz"
    for probe in ("livenessProbe", "startupProbe"):
        assert found["triton"][probe]["httpGet"] == {"path": "/metrics", "port": 8002}, "the only port that is reached"
    assert "v2/health" not in json.dumps(found)


def test_the_release_is_in_the_pod_template(repository: Path) -> None:
    annotations = rendered(repository)["Deployment"]["spec"]["template"]["metadata"]["annotations"]
    assert re.fullmatch(r"1:[0-9a-f]{16}", annotations["trimaran.io/release"])


def test_pods_are_added_by_tritons_queue(repository: Path) -> None:
    (metric,) = rendered(repository, "--pending", 5)["HorizontalPodAutoscaler"]["spec"]["metrics"]
    assert metric["pods"]["metric"]["name"] == "nv_inference_pending_request_count"
    assert metric["pods"]["target"] == {"type": "AverageValue", "averageValue": "5"}


def test_what_was_proven_travels_and_nothing_runs_as_root(repository: Path) -> None:
    found = containers(rendered(repository))
    assert {"name": "ONEDNN_MAX_CPU_ISA", "value": "AVX512_CORE_FP16"} in found["triton"]["env"]
    assert found["triton"]["resources"]["requests"]["cpu"] == "3"
    assert "nvidia.com/gpu" not in json.dumps(found)
    for container in found.values():
        assert int(container["resources"]["limits"]["cpu"]) >= 1
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["allowPrivilegeEscalation"] is False


def test_a_model_on_a_gpu_asks_for_one(repository: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(repository, tmp_path / "r")
    config = tmp_path / "r" / "My_Model.v2" / "config.pbtxt"
    config.write_text(config.read_text() + "\ninstance_group { kind: KIND_GPU }\n")
    assert served_model(tmp_path / "r", "My_Model.v2").gpu
    triton = containers(rendered(tmp_path / "r"))["triton"]
    assert triton["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert triton["command"] == [NVIDIA_ENTRYPOINT, "trimaran"], (
        "the watchdog is inside, and HTTP and gRPC stay on the loopback"
    )
    assert triton["args"][:4] == ["serve", "/models", "--model=My_Model.v2", "--metrics-host=0.0.0.0"]
    assert triton["livenessProbe"]["httpGet"] == {"path": "/metrics", "port": 8002}
    said = trimaran_json_here("serve", tmp_path / "r", "--docker", "--dry-run", home=tmp_path / "home")
    assert said["command"][said["command"].index("--gpus") + 1] == "device=0"
    assert "trimaran-plans:/plans" in said["command"]
    version = tmp_path / "r" / "My_Model.v2" / "1"
    write_serving(version, read_serving(version).model_copy(update={"engine_options": {"device": 1}}))
    said = trimaran_json_here("serve", tmp_path / "r", "--docker", "--dry-run", home=tmp_path / "home")
    assert said["command"][said["command"].index("--gpus") + 1] == '"device=0,1"', "GPUs keep their numbers"
    refused = trimaran_here("kubernetes", "My_Model.v2", "--repository", tmp_path / "r", home=tmp_path / "home")
    assert refused.returncode == 2 and "the only GPU of a pod is number 0" in refused.stderr


def test_a_model_on_a_gpu_has_room_time_and_a_writable_volume_for_its_build(repository: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(repository, tmp_path / "r")
    config = tmp_path / "r" / "My_Model.v2" / "config.pbtxt"
    before = rendered(tmp_path / "r")
    config.write_text(config.read_text() + "\ninstance_group { kind: KIND_GPU }\n")
    after = rendered(tmp_path / "r")
    (plans,) = [mount for mount in containers(after)["triton"]["volumeMounts"] if mount["name"] == "plans"]
    assert plans == {"name": "plans", "mountPath": "/plans"}
    volumes = after["Deployment"]["spec"]["template"]["spec"]["volumes"]
    assert {"name": "plans", "persistentVolumeClaim": {"claimName": "plans"}} in volumes
    probes = [containers(found)["triton"]["startupProbe"] for found in (before, after)]
    assert [probe["periodSeconds"] * probe["failureThreshold"] for probe in probes] == [300, 1800]
    memory = [containers(found)["triton"]["resources"]["limits"]["memory"] for found in (before, after)]
    assert int(memory[1].removesuffix("Gi")) - int(memory[0].removesuffix("Gi")) == 6


def test_compose_reserves_one_gpu_and_a_volume_that_triton_may_write_to() -> None:
    services = yaml.safe_load((DEPLOY / "compose.gpu.yaml").read_text())["services"]
    (device,) = services["triton"]["deploy"]["resources"]["reservations"]["devices"]
    assert (device["count"], device["capabilities"]) == (1, ["gpu"])
    assert services["triton"]["volumes"] == ["plans:/plans"]
    assert "install -d -m 1777 /plans" in (DEPLOY / "Dockerfile").read_text()


def test_the_gpu_image_serves_the_finished_copy_under_the_watchdog() -> None:
    service = yaml.safe_load((DEPLOY / "compose.gpu.yaml").read_text())["services"]["triton"]
    assert service["command"][:3] == ["trimaran", "serve", FINISHED_FOLDER]
    assert "--model=${MODEL:?name the model to serve}" in service["command"]
    assert service["image"] == GPU_IMAGE
    dockerfile = (DEPLOY / "gpu.Dockerfile").read_text()
    copied = {word for line in dockerfile.splitlines() if line.startswith("COPY") for word in line.split()[1:-1]}
    kept = (DEPLOY.parent / ".dockerignore").read_text()
    assert "!deploy/finish-and-serve" in kept and "deploy/finish-and-serve" in copied, "a build sees only what is kept"
    assert "constraints.txt" in copied, "a file of the package is a link to it"
    assert "--require-hashes" in dockerfile and "HEALTHCHECK" in dockerfile and "TRIMARAN_TRITON" in dockerfile
    assert f"TRITON={GPU_RELEASE.triton}" in dockerfile and f"={GPU_RELEASE.wheel}\n" in dockerfile
    assert f'ENTRYPOINT ["{NVIDIA_ENTRYPOINT}", "finish-and-serve"]' in dockerfile


@pytest.mark.parametrize("finished", [True, False])
def test_the_entry_point_serves_only_what_was_finished(tmp_path: Path, finished: bool) -> None:
    command = tmp_path / "trimaran"
    command.write_text(f'#!/bin/sh\necho "$@"\nexit {0 if finished else 4}\n')
    command.chmod(0o755)
    variables = {"PATH": f"{tmp_path}:/usr/bin:/bin", "MODEL": "minilm"}
    done = subprocess.run(
        [str(DEPLOY / "finish-and-serve"), "echo", "serving"],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    said = "finish /models minilm --into /plans/models\n"
    assert (done.returncode, done.stdout) == ((0, f"{said}serving\n") if finished else (4, said))


def test_a_prepared_model_is_finished_by_an_init_container_on_a_writable_volume(
    repository: Path, tmp_path: Path
) -> None:
    import shutil

    from kubernetes_validate import utils

    shutil.copytree(repository, tmp_path / "r")
    model = tmp_path / "r" / "My_Model.v2"
    config = model / "config.pbtxt"
    config.write_text(config.read_text() + "\ninstance_group { kind: KIND_GPU }\n")
    (model / "1" / "prepared.json").write_text("{}")
    found = rendered(tmp_path / "r")
    utils.validate(found["Deployment"], utils.latest_version(), strict=True)
    (finish,) = found["Deployment"]["spec"]["template"]["spec"]["initContainers"]
    assert finish["command"] == [NVIDIA_ENTRYPOINT, "trimaran"]
    assert finish["args"] == ["finish", "/models", "My_Model.v2", "--into=/plans/models"]
    assert finish["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert {"name": "plans", "mountPath": "/plans"} in finish["volumeMounts"]
    assert finish["image"] == containers(found)["triton"]["image"] == GPU_IMAGE
    assert containers(found)["triton"]["args"][:2] == ["serve", "/plans/models"]


def test_stages_that_a_model_calls_are_loaded_with_it(tmp_path: Path) -> None:
    for name, rows in (("together", "padded"), ("apart", "alone")):
        lay_out(
            tiny_artifact(tmp_path / "s"), repository=tmp_path / "r", name=name, rows=rows, threads=1, separate=True
        )
    command = trimaran_json_here("serve", tmp_path / "r", "--docker", "--dry-run", home=tmp_path / "home")["command"]
    loaded = [argument.partition("=")[2] for argument in command if argument.startswith("--load-model=")]
    # An ensemble brings its steps along; a stage that calls its engine by name does not.
    assert loaded == ["apart_onnxruntime", "apart", "together"]
    said = trimaran_json_here("kubernetes", "apart", "--repository", tmp_path / "r", home=tmp_path / "home")
    deployment = next(item for item in said["items"] if item["kind"] == "Deployment")
    arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    assert [argument for argument in arguments if argument.startswith("--model")] == ["--model=apart"]
    assert wanted_models(tmp_path / "r", {"models": ("apart",)}) == ["apart", "apart_onnxruntime"]
    with pytest.raises(UsageError, match="holds no model 'nowhere'"):
        wanted_models(tmp_path / "r", {"models": ("nowhere",)})


def test_the_gateway_of_the_compose_file_asks_tritons_grpc_port() -> None:
    command = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["gateway"]["command"]
    assert f"--url=triton:{PORTS['grpc']}" in command and f"--repository={MODELS_FOLDER}" in command


def test_a_repository_without_text_models_holds_nothing_to_serve(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no models to serve"):
        served_models(tmp_path)


def test_an_unknown_model_is_named_with_those_there_are(repository: Path) -> None:
    done = trimaran_here("kubernetes", "nowhere", "--repository", repository, home=repository.parent / "home")
    assert done.returncode == 2
    assert "My_Model.v2" in done.stderr


def test_the_container_command_is_printed_and_binds_to_the_loopback(repository: Path) -> None:
    home = repository.parent / "home"
    command = trimaran_json_here("serve", repository, "--docker", "--dry-run", "--http-port", 9000, home=home)[
        "command"
    ]
    published = [after for before, after in itertools.pairwise(command) if before == "--publish"]
    assert published == ["127.0.0.1:9000:8000", "127.0.0.1:8001:8001", "127.0.0.1:8002:8002"]
    assert f"{repository}:/models:ro" in command
    assert "ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16" in command
    assert "--gpus" not in command
    assert "--load-model=My_Model.v2" in command
    printed = trimaran_here("serve", repository, "--docker", "--dry-run", home=home)
    assert printed.stdout.startswith("docker run ")


def test_a_container_that_does_not_start_is_an_error(repository: Path, tmp_path: Path) -> None:
    docker = tmp_path / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text("#!/bin/sh\nexit 125\n")
    docker.chmod(0o755)
    variables = {**environment(tmp_path / "home"), "PATH": str(docker.parent)}
    command = [sys.executable, "-m", "trimaran", "serve", str(repository), "--docker"]
    done = subprocess.run(command, env=variables, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 6
    assert "status 125" in done.stderr and "docker build" in done.stderr
    docker.unlink()
    none = subprocess.run(command, env=variables, cwd=ROOT, capture_output=True, text=True, check=False)
    assert none.returncode == 3


@pytest.mark.parametrize("name", [f"requirements-{image}.txt" for image in ("triton", "gateway", "cpu", "finish")])
def test_images_have_the_versions_that_models_are_proven_with(name: str) -> None:
    def plain(line: str) -> str:
        return re.sub(r"[-_.]+(?=.*==)|_", "-", re.sub(r"\[.*\]", "", line)).lower()

    known = {plain(line) for line in (ROOT / "constraints.txt").read_text().splitlines()}
    wanted = {plain(line.removesuffix(" \\")) for line in (DEPLOY / name).read_text().splitlines() if "==" in line}
    assert wanted and wanted <= known
    asked = (DEPLOY / name).with_suffix(".in").read_text().splitlines()
    assert {plain(line) for line in asked if not line.startswith("#")} <= {line.split("==")[0] for line in wanted}


def test_tritons_image_has_all_that_the_python_stages_import(repository: Path) -> None:
    lines = (DEPLOY / "requirements-triton.txt").read_text().splitlines()
    installed = {line.split("==")[0] for line in lines if "==" in line}
    imported = set()
    for path in repository.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                imported.add(node.module.split(".")[0])
    foreign = imported - set(sys.stdlib_module_names) - {"triton_python_backend_utils"}
    assert foreign and foreign <= installed


def test_the_compose_file_publishes_the_gateway_alone_and_wants_a_key() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    assert "ports" not in services["triton"]
    assert services["gateway"]["ports"] == ["127.0.0.1:8080:8080"]
    assert not [argument for argument in services["gateway"]["command"] if "no-auth" in argument]
    assert services["triton"]["networks"] == ["inside"]


def test_the_compose_file_serves_under_the_watchdog() -> None:
    service = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["triton"]
    model = "--model=${MODEL:?name the model to serve}"
    assert service["command"] == ["serve", MODELS_FOLDER, model, "--host=0.0.0.0", "--log=-"]
    assert service["image"] == CPU_IMAGE and service["build"]["dockerfile"] == "deploy/cpu.Dockerfile"
    assert [volume.rpartition("}:")[2] for volume in service["volumes"]] == [f"{MODELS_FOLDER}:ro"]
    # Triton drains in its own time, and the supervisor ends after it.
    assert service["stop_grace_period"] == f"{EXIT_TIMEOUT_S + 10}s"


def test_the_gateway_starts_with_nothing_but_its_own_libraries(tmp_path: Path) -> None:
    """As in its image: every other library of the project is made impossible to import."""
    code = (
        "import sys\n"
        "for name in ('torch', 'transformers', 'onnx', 'onnxscript', 'onnxruntime', 'openvino', 'nncf', 'scipy',"
        " 'safetensors', 'sentencepiece', 'psutil', 'pytriton', 'sentence_transformers', 'ray', 'faiss'):\n"
        "    sys.modules[name] = None\n"
        "from trimaran.cli import main\n"
        "main(['gateway', '--url', '127.0.0.1:1', '--no-auth', '--port', '0', '--json'])\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], env=environment(tmp_path), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        process.terminate()
    assert json.loads(said)["port"] > 0
