"""The OpenAPI description of the gateway, made from its table of paths."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from trimaran import __version__
from trimaran.serving.gateway.messages import ErrorResponse
from trimaran.serving.gateway.routes import ROUTES, GatewayRoute

_JSON = "application/json"
_REFUSALS = {
    400: "The body is not JSON.",
    401: "No valid key.",
    404: "No such model.",
    408: "The body arrived too slowly.",
    411: "The body has no Content-Length.",
    413: "More than one request may hold.",
    415: "The body is not declared as plain JSON.",
    422: "The body is JSON, but breaks the schema or names something impossible.",
    429: "Too many requests of one caller; Retry-After says when.",
    500: "The gateway failed.",
    502: "The model failed.",
    503: "Overloaded or not ready; Retry-After says when.",
    504: "No answer in time.",
}
_STATUSES_OF_GET = (401, 429, 500, 503)


def description(*, keys: bool) -> dict[str, Any]:
    """OpenAPI 3.1. With `keys`, callers need a key."""
    schemas: list[type[BaseModel]] = [ErrorResponse]
    for route in ROUTES.values():
        schemas += [route.response, *([route.request] if route.request else [])]
    _, definitions = models_json_schema(
        [(schema, "validation") for schema in schemas], ref_template="#/components/schemas/{model}"
    )
    components: dict[str, Any] = {"schemas": definitions["$defs"]}
    if keys:
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    paths = {path: {route.method.lower(): _operation(route, keys=keys)} for path, route in ROUTES.items()}
    plain_text = {"text/plain": {"schema": {"type": "string"}}}
    paths["/metrics"] = {
        "get": {
            "operationId": "metrics",
            "summary": "Metrics for Prometheus",
            **_endings(plain_text, _STATUSES_OF_GET, keys=keys, is_open=False),
        }
    }
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


def _operation(route: GatewayRoute, *, keys: bool) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.path.strip("/").replace("/", "_"),
        "summary": (route.handle.__doc__ or "").rstrip("."),
        **_endings(
            _json_of(route.response),
            _REFUSALS if route.request else _STATUSES_OF_GET,
            keys=keys,
            is_open=route.is_open,
        ),
    }
    if route.tasks:
        # The page offers only the paths that a served model answers.
        operation["x-tasks"] = list(route.tasks)
    if route.request:
        content = _json_of(route.request)
        content[_JSON]["example"] = route.request.example
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _endings(answer: dict[str, Any], refusals: Iterable[int], *, keys: bool, is_open: bool) -> dict[str, Any]:
    """The responses of an operation, and whether it needs a key."""
    responses = {"200": {"description": "The answer.", "content": answer}}
    for status in refusals:
        if keys or status != 401:
            responses[str(status)] = {"description": _REFUSALS[status], "content": _json_of(ErrorResponse)}
    return {"responses": responses, "security": [{"key": []}] if keys and not is_open else []}


def _json_of(schema: type[BaseModel]) -> dict[str, Any]:
    return {_JSON: {"schema": {"$ref": f"#/components/schemas/{schema.__name__}"}}}
