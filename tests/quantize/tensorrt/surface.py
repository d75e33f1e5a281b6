"""A stand-in for TensorRT 11 that is made of the list of its names.

Our code runs against it as against the real module. A name that the list does not have is an AttributeError, as it
would be in TensorRT; every name that is used is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

SURFACE = frozenset(
    name
    for name in (Path(__file__).parent / "tensorrt_surface.txt").read_text(encoding="utf-8").splitlines()
    if name and not name.startswith("#")
)


class Member:
    """One value of an enumeration, such as ILogger.ERROR."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __int__(self) -> int:
        """The value in TensorRT 11 of the only member whose value our code reads: STRONGLY_TYPED."""
        return 0


class StandIn(ModuleType):
    """The module. `answers` are what attributes are, and what methods return, by `Class.name`."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        super().__init__("tensorrt")
        self.used: set[str] = set()
        self.answers = dict(answers)
        self._classes: dict[str, type] = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__version__":
            raise AttributeError(name)
        self.use(name)
        if name in self.answers:
            return self.answers[name]
        if name not in self._classes:
            self._classes[name] = _class_of(self, name)
        return self._classes[name]

    def use(self, name: str) -> None:
        if name not in SURFACE:
            raise AttributeError(f"TensorRT 11 has no {name}")
        self.used.add(name)

    def make(self, name: str) -> Any:
        """An object of the class that our code cannot construct, but gets from a call."""
        return getattr(self, name)()


def _class_of(module: StandIn, name: str) -> type:
    members: dict[str, Member] = {}

    class Meta(type):
        def __getattr__(cls, attribute: str) -> Any:
            module.use(f"{name}.{attribute}")
            return members.setdefault(attribute, Member(attribute))

    class Handle(metaclass=Meta):
        def __init__(self, *arguments: Any) -> None:
            object.__setattr__(self, "arguments", arguments)

        def __getattr__(self, attribute: str) -> Any:
            module.use(f"{name}.{attribute}")
            answer = module.answers[f"{name}.{attribute}"]
            return (lambda *given: answer(self, *given)) if callable(answer) else answer

        def __setattr__(self, attribute: str, value: Any) -> None:
            # Our own subclasses, such as a logger, may have attributes of their own.
            if type(self) is Handle:
                module.use(f"{name}.{attribute}")
            object.__setattr__(self, attribute, value)

    Handle.__name__ = name
    return Handle


def returning(value: Any) -> Callable[..., Any]:
    return lambda handle, *given: value


def names_asked(attributes: set[str]) -> set[str]:
    """Of these attributes, those that any class of TensorRT has."""
    return attributes & {name.rpartition(".")[2] for name in SURFACE if "." in name}
