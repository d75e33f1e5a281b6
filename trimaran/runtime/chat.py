"""Texts in the chat template of their model, without a template language.

A template is rendered once at export and cut at its texts. What is left are the strings around them:

    around = ["<user>", "<assistant>"], roles = ["user"]        "hello" -> "<user>hello<assistant>"

It travels with a deployed model beside `text.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

# Texts that stand for any text: whatever tokens two of them share at the end are the template's.
_FILLERS = ("0", "1 2 3 4")
SYSTEM = "system"


def roles_of(text: str | tuple[str, str], instruction: str) -> tuple[str, ...]:
    """The roles of the messages that sentence-transformers makes of a text, in order."""
    roles = ("user",) if isinstance(text, str) else ("query", "document")
    return (SYSTEM, *roles) if instruction else roles


def filled(template: Mapping[str, Any], texts: Mapping[str, str]) -> str:
    """The template with the text of each role in its place."""
    around: Sequence[str] = template["around"]
    values = [texts[role].strip() if template["strip"] else texts[role] for role in template["roles"]]
    return around[0] + "".join(value + after for value, after in zip(values, around[1:], strict=True))


class Chat:
    """The chat templates of a model, by the roles of their messages."""

    def __init__(self, templates: Mapping[str, Mapping[str, Any]], *, restore_end: bool, tokenizer: Any) -> None:
        self._templates = templates
        self._restore_end = restore_end
        self._tokenizer = tokenizer
        self._end = functools.lru_cache(maxsize=256)(self._end_of)

    def rendered(self, text: str | tuple[str, str], instruction: str) -> str:
        """Raises ValueError where the template has no place for what is given."""
        text = self._fitting(text)
        roles = roles_of(text, instruction)
        template = self._templates.get(",".join(roles))
        if template is None:
            what = "a single text" if isinstance(text, str) else "a pair of texts"
            raise ValueError(f"The chat template of this model has no place for {what}.")
        if instruction and SYSTEM not in template["roles"]:
            raise ValueError("The chat template of this model has no place for an instruction.")
        texts = (text,) if isinstance(text, str) else text
        return filled(template, dict(zip(roles, (instruction, *texts) if instruction else texts, strict=True)))

    def ended(self, encoding: Any, text: str | tuple[str, str], instruction: str, *, maximum: int) -> Any:
        """The encoding, if it was cut with its last tokens replaced by the end of the template.

        Rerankers read the last token: without the end of the template they would read the middle of a document.
        """
        if not self._restore_end or len(encoding.ids) < maximum:
            return encoding
        end = self._end(roles_of(self._fitting(text), instruction), instruction)[-len(encoding.ids) :]
        return Rewritten(encoding, [*encoding.ids[: len(encoding.ids) - len(end)], *end]) if end else encoding

    def _fitting(self, text: str | tuple[str, str]) -> str | tuple[str, str]:
        """A single text as a pair with itself, where the template is for pairs only.

        Callers of a reranker send pairs. Warm-ups, calibration and proofs also run single texts.
        """
        single = isinstance(text, str) and "user" not in self._templates
        return (str(text), str(text)) if single else text

    def _end_of(self, roles: tuple[str, ...], instruction: str) -> tuple[int, ...]:
        """The tokens at the end of the template, which do not depend on the texts."""
        template = self._templates[",".join(roles)]
        first, second = (
            self._all_tokens(filled(template, {**dict.fromkeys(roles, filler), SYSTEM: instruction}))
            for filler in _FILLERS
        )
        common = 0
        for mine, other in zip(reversed(first), reversed(second), strict=False):
            if mine != other:
                break
            common += 1
        return tuple(first[-common:]) if 0 < common < min(len(first), len(second)) else ()

    def _all_tokens(self, text: str) -> list[int]:
        """All tokens of a text, also those that the tokenizer's own truncation cut off."""
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        return [token for part in (encoding, *encoding.overflowing) for token in part.ids]


class Rewritten:
    """A tokenizer's encoding with other ids."""

    def __init__(self, encoding: Any, ids: Sequence[int]) -> None:
        self._encoding = encoding
        self.ids = ids

    def __getattr__(self, name: str) -> Any:
        return getattr(self._encoding, name)

    def __len__(self) -> int:
        return len(self.ids)
