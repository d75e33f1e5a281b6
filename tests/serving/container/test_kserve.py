"""The objects for KServe have only fields that KServe's own client knows."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from tests.commands import trimaran_json_here
from tests.tiny import tiny_artifact
from trimaran.model_repository.layout import lay_out

KINDS = {"ServingRuntime": "V1alpha1ServingRuntime", "InferenceService": "V1beta1InferenceService"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    root = tmp_path_factory.mktemp("kserve")
    lay_out(tiny_artifact(root / "store"), repository=root / "model_repository", name="tiny", rows="alone", threads=1)
    said = trimaran_json_here("kubernetes", "tiny", "--kserve", "--namespace", "ml", home=root / "home", cwd=root)
    return list(said["items"])


def test_the_service_names_its_runtime_and_the_claim(made: list[dict[str, Any]]) -> None:
    runtime, service = made
    model = service["spec"]["predictor"]["model"]
    assert model["runtime"] == runtime["metadata"]["name"] and model["storageUri"] == "pvc://models/"
    (container,) = runtime["spec"]["containers"]
    assert container["name"] == "kserve-container", "KServe finds the container by this name"
    assert any("/mnt/models" in argument for argument in container["args"])
    assert {item["metadata"]["namespace"] for item in made} == {"ml"}


def test_the_container_is_one_that_kubernetes_runs(made: list[dict[str, Any]]) -> None:
    spec = {"containers": made[0]["spec"]["containers"], "volumes": made[0]["spec"]["volumes"]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "tiny"}, "spec": spec}
    kubernetes_validate.validate(pod, "1.27", strict=True)


def test_every_field_is_one_of_kserves_own_client(made: list[dict[str, Any]]) -> None:
    spec = importlib.util.find_spec("kserve")
    if spec is None:
        pytest.skip("the package kserve, whose types are read, is not installed: `make test` installs it")
    (folder,) = spec.submodule_search_locations or ()
    for item in made:
        check(item, KINDS[item["kind"]], Path(folder) / "models")


def check(value: Any, kind: str, models: Path) -> None:
    """Walks the value by the types of the client's source. Types of Kubernetes itself are checked elsewhere."""
    if match := re.fullmatch(r"list\[(.*)\]", kind):
        for part in value:
            check(part, match[1], models)
    elif re.fullmatch(r"V1(alpha|beta)1\w+", kind):
        path = models / f"{re.sub(r'(?<!^)(?=[A-Z])', '_', kind).lower()}.py"
        types, names = (tables_of(path)[name] for name in ("openapi_types", "attribute_map"))
        fields = {name: types[attribute] for attribute, name in names.items()}
        for name, part in value.items():
            assert name in fields, f"{kind} has no {name}"
            check(part, fields[name], models)
    elif kind in ("str", "int", "bool"):
        assert type(value).__name__ == kind


def tables_of(path: Path) -> dict[str, dict[str, str]]:
    """The two tables of a generated class, read without importing the package."""
    (definition,) = (node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef))
    return {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in definition.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Dict)
    }
