"""The base of every fact that is kept in a JSON file: the version of its schema, its writer and its reader."""

from __future__ import annotations

import json
from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import ConfigDict, Field
from pydantic import ValidationError as SchemaError

from trimaran.core.errors import IntegrityError, UsageError, first_line
from trimaran.core.spec import Frozen


class Persisted(Frozen):
    """A subclass whose schema has changed overrides `schema_version`."""

    model_config = ConfigDict(populate_by_name=True)

    # What the file is called in error messages, and what to do when it is damaged.
    what: ClassVar[str] = "file"
    remedy: ClassVar[str] = ""
    # The indent of the JSON text; None writes one line.
    indent: ClassVar[int | None] = None

    schema_version: Literal[1] = Field(default=1, alias="schema")

    def to_json(self) -> str:
        return self.model_dump_json(by_alias=True, indent=self.indent) + "\n"

    @classmethod
    def read(cls, path: Path) -> Self:
        """Raises IntegrityError for a file that is missing, damaged or of another schema."""
        try:
            return cls.from_json(path.read_bytes(), origin=path)
        except OSError as error:
            raise IntegrityError(
                f"{path} is not a readable {cls.what}: {error.strerror}.", hint=cls.remedy, path=str(path)
            ) from error

    @classmethod
    def from_json(cls, text: bytes | str, *, origin: object) -> Self:
        """`origin` is where the text comes from, for the error message."""
        try:
            return cls.model_validate_json(text)
        except UsageError as error:
            # Values that contradict each other are the person's mistake only where the person typed them.
            raise IntegrityError(
                f"{origin} is not a readable {cls.what}: {error.message}", hint=cls.remedy, path=str(origin)
            ) from error
        except SchemaError as error:
            expected = cls.model_fields["schema_version"].default
            written = _schema_of(text)
            if written not in (None, expected):
                raise IntegrityError(
                    f"{origin} has schema {written}; this version of trimaran reads schema {expected}.",
                    hint="Use the version of trimaran that wrote it, or a newer one.",
                ) from error
            raise IntegrityError(
                f"{origin} is not a readable {cls.what}: {_reason(error)}", hint=cls.remedy, path=str(origin)
            ) from error


def _reason(error: SchemaError) -> str:
    """Pydantic's heading with the first thing that it found."""
    first = error.errors(include_url=False)[0]
    field = ".".join(map(str, first["loc"]))
    return f"{first_line(error)} ({field}: {first['msg']})." if field else first_line(error)


def _schema_of(text: bytes | str) -> object:
    """The schema that the text names, or None."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return data.get("schema") if isinstance(data, dict) else None
