"""Makes a folder of its own of one route of a sentence-transformers Router: `FOLDER#query` is deployed as a model.

A Router holds one list of modules for queries and another for documents. The folder that is made lists the modules of
one route, with those around the Router, so that it is read like any other. Files are linked, or copied where links
cannot be made. Nothing is loaded.

Example: modules Router(query: [Transformer, Pooling], document: …), Normalize become Transformer, Pooling, Normalize.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trimaran.core.errors import UsageError
from trimaran.core.store import default_home, link_or_copy, publish, temporary_sibling
from trimaran.export.read_json import path_inside, read_json

SEPARATOR = "#"
ROUTER = "Router"
_CONFIG = "router_config.json"
_MODULES = "modules.json"
_SETTINGS = "config_sentence_transformers.json"


def split_source(source: str) -> tuple[str, str]:
    """The model and the route of `FOLDER#query`; "" for none. A folder may have the sign in its own name."""
    if Path(source).expanduser().exists():
        return source, ""
    model, _, route = source.partition(SEPARATOR)
    return model, route


def routes_of(folder: Path, router: str) -> Mapping[str, list[str]]:
    """By route, the folders of its modules. `router` is the Router's own folder inside the model's."""
    config = read_json(folder / router / _CONFIG, what="a Router without its config")
    return {str(name): [str(module) for module in modules] for name, modules in config.get("structure", {}).items()}


def route_folder(folder: Path, route: str) -> Path:
    """The folder of one route. It is made once for each state of the files."""
    rows = read_json(folder / _MODULES, what="modules.json is damaged", kind=list)
    router = next((row for row in rows if str(row.get("type", "")).endswith(f".{ROUTER}")), None)
    if router is None:
        raise UsageError(f"{folder} has no routes: it is one model.", hint=f"Leave {SEPARATOR}{route} out.")
    inside = str(router.get("path", ""))
    routes = routes_of(folder, inside)
    if route not in routes:
        raise UsageError(f"{folder} has no route {route!r}.", hint=f"Its routes: {', '.join(routes)}.")
    target = default_home() / "routes" / _state(folder) / f"{folder.name}-{route}"
    if not target.is_dir():
        types = read_json(folder / inside / _CONFIG, what="damaged")["types"]
        own = [{"path": str(Path(inside) / module), "type": types[module]} for module in routes[route]]
        index = rows.index(router)
        _make(folder, [*rows[:index], *own, *rows[index + 1 :]], route, target)
    return target


def _make(folder: Path, modules: list[dict[str, Any]], route: str, target: Path) -> None:
    """Everything is made aside and published by one rename."""
    with temporary_sibling(target) as aside:
        made = aside / target.name
        made.mkdir()
        for row in modules:
            if path := str(row.get("path", "")):
                shutil.copytree(path_inside(folder, path, stated_in=_MODULES), made / path, copy_function=_link)
            else:
                # The module's files lie in the model's own folder.
                for file in filter(Path.is_file, folder.iterdir()):
                    _link(str(file), str(made / file.name))
        _write(made / _MODULES, [{**row, "idx": index, "name": str(index)} for index, row in enumerate(modules)])
        settings = read_json(folder / _SETTINGS, what="damaged") if (folder / _SETTINGS).is_file() else {}
        default = route if (settings.get("prompts") or {}).get(route) is not None else None
        _write(made / _SETTINGS, {**settings, "default_prompt_name": default})
        publish(made, target)


def _write(path: Path, content: Any) -> None:
    # Never through a link: that would change the user's own file.
    path.unlink(missing_ok=True)
    path.write_text(json.dumps(content, indent=2), encoding="utf-8")


def _link(source: str, target: str) -> None:
    # The hub's own folders consist of symbolic links.
    link_or_copy(Path(source).resolve(), Path(target))


def _state(folder: Path) -> str:
    """A name for the files as they are: changed ones make another folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    facts = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
