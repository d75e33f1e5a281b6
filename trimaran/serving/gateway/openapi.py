"""The published description of the gateway, made from its table of paths."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from trimaran import __version__
from trimaran.serving.gateway.messages import ErrorResponse
from trimaran.serving.gateway.routes import ROUTES, Route

_JSON = "application/json"
_REFUSALS = {
    400: "The body is not JSON.",
    401: "No valid key.",
    404: "No such model.",
    408: "The body came too slowly.",
    411: "The body has no Content-Length.",
    413: "More than is taken in one request.",
    415: "The body is not declared as plain JSON.",
    422: "The body is JSON, but not what is wanted.",
    429: "Too many requests of one caller; Retry-After says when.",
    500: "A fault of the gateway.",
    502: "The model failed.",
    503: "Overloaded or not ready; Retry-After says when.",
    504: "No answer in time.",
}
_OF_GET = (401, 429, 500, 503)


def description(*, keys: bool) -> dict[str, Any]:
    """OpenAPI 3.1. `keys`: whether a key is wanted."""
    wanted: list[type[BaseModel]] = [ErrorResponse]
    for route in ROUTES.values():
        wanted += [route.response] + ([route.request] if route.request else [])
    _, schemas = models_json_schema(
        [(model, "validation") for model in wanted], ref_template="#/components/schemas/{model}"
    )
    components: dict[str, Any] = {"schemas": schemas["$defs"]}
    if keys:
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    paths = {path: {route.method.lower(): _operation(route, keys=keys)} for path, route in ROUTES.items()}
    paths["/metrics"] = {"get": _metrics(keys=keys)}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Trimaran gateway",
            "version": __version__,
            "description": "Text in, answers out, from models proven to answer as they did in PyTorch.",
        },
        "paths": paths,
        "components": components,
    }


def _operation(route: Route, *, keys: bool) -> dict[str, Any]:
    refused = _REFUSALS if route.request else _OF_GET
    operation: dict[str, Any] = {
        "operationId": route.path.strip("/").replace("/", "_"),
        "summary": route.summary,
        "responses": {
            "200": {"description": "The answer.", "content": {_JSON: {"schema": _reference(route.response)}}},
            **_refusals([status for status in refused if keys or status != 401]),
        },
        "security": [{"key": []}] if keys and not route.open else [],
    }
    if route.request:
        content = {"schema": _reference(route.request), "example": route.example}
        operation["requestBody"] = {"required": True, "content": {_JSON: content}}
    return operation


def _metrics(*, keys: bool) -> dict[str, Any]:
    return {
        "operationId": "metrics",
        "summary": "Figures for Prometheus",
        "responses": {
            "200": {"description": "The figures.", "content": {"text/plain": {"schema": {"type": "string"}}}},
            **_refusals([status for status in _OF_GET if keys or status != 401]),
        },
        "security": [{"key": []}] if keys else [],
    }


def _refusals(statuses: list[int]) -> dict[str, Any]:
    return {
        str(status): {
            "description": _REFUSALS[status],
            "content": {_JSON: {"schema": _reference(ErrorResponse)}},
        }
        for status in statuses
    }


def _reference(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{model.__name__}"}
