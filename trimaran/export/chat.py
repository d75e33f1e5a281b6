"""Takes the chat template of a model apart, so that a server can fill it without a template language.

sentence-transformers puts every text into the chat template, if the folder says so or if it is no folder of its own:
a single text as the message of a user, a pair as a query and a document, a prompt as the system's message.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from trimaran.core.errors import UsageError, first_line
from trimaran.core.spec import ChatTemplate, ChatTemplates, ModelRef
from trimaran.core.tasks import task
from trimaran.export.sentence import sentence_config, sentence_modules
from trimaran.runtime.chat import SYSTEM, filled, roles_of
from trimaran.runtime.text import Text

_Format = Literal["flat", "structured"]
_Render = Callable[[Mapping[str, str]], str]
# What sentence-transformers looks for in a template whose messages are lists of parts.
_STRUCTURED = ("content[0]", ".type", "'type'", '"type"', "message.content[")
_MARK = "zq{}qz"
# Texts that a template might treat in a way of its own.
_PROBES = ("a", "a b\nc", " \n\ta b\n ", "", "{{ a }} <|im_end|>")
_TEXT: Text = "text"
_PAIR: Text = ("query", "document")


def chat_of(ref: ModelRef, tokenizer: Any) -> ChatTemplates | None:
    """The templates of the model's texts; None if its texts are read as they are.

    Raises UsageError if the template cannot be taken apart, or has no place for the texts of the task.
    """
    row = task(ref.task)
    if ref.module or not row.library.sentence:
        return None
    body, modules = Path(ref.directory), sentence_modules(Path(ref.root))
    config = sentence_config(body)
    message = (config.get("modality_config") or {}).get("message")
    template = getattr(tokenizer, "chat_template", None)
    if template is None or (modules and message is None):
        return None
    stated = (message or {}).get("format", "auto")
    form: _Format = _format_of(template) if stated == "auto" else stated
    arguments = dict((config.get("processing_kwargs") or {}).get("chat_template") or {})
    restore_end = bool(arguments.pop("restore_suffix", True))

    def render(texts: Mapping[str, str]) -> str:
        messages = [
            {"role": role, "content": text if form == "flat" else [{"type": "text", "text": text}]}
            for role, text in texts.items()
        ]
        return str(tokenizer.apply_chat_template(messages, tokenize=False, **arguments))

    wanted = {"single": (_TEXT,), "pair": (_PAIR,), "either": (_TEXT, _PAIR)}[row.texts]
    templates = {}
    for text in (_TEXT, _PAIR):
        for instruction in ("", "instruction"):
            roles = roles_of(text, instruction)
            try:
                templates[",".join(roles)] = taken_apart(render, roles)
            except ValueError as error:
                if text in wanted and not instruction:
                    raise UsageError(
                        f"The chat template of {ref.source} cannot be used for {ref.task}: {error}.",
                        hint="Put a chat_template.jinja beside the model that prints the texts of the roles "
                        f"{' and '.join(roles)} as they are.",
                    ) from error
    placeless = [roles for roles, known in templates.items() if SYSTEM in roles and SYSTEM not in known.roles]
    if placeless and any(ref.prompts.values()):
        raise UsageError(
            f"The chat template of {ref.source} has no place for its prompts.",
            hint="Print the text of the role system in chat_template.jinja, or remove the prompts.",
        )
    return ChatTemplates(templates=templates, restore_end=restore_end)


def taken_apart(render: _Render, roles: tuple[str, ...]) -> ChatTemplate:
    """The template for messages of these roles. Raises ValueError if it is more than strings around the texts."""
    marks = {role: _MARK.format(role) for role in roles}
    try:
        whole = render(marks)
        pieces = re.split("|".join(f"({re.escape(mark)})" for mark in marks.values()), whole)
        parts = [piece for piece in pieces if piece is not None]
        gaps = [name for piece in parts for name, mark in marks.items() if piece == mark]
        absent = [role for role in roles if role not in gaps and role != SYSTEM]
        if absent:
            raise ValueError(f"it leaves out the text of the role {absent[0]}")
        around = tuple(piece for piece in parts if piece not in marks.values())
        for strip in (False, True):
            template = ChatTemplate(around=around, roles=tuple(gaps), strip=strip)
            if all(filled(template.model_dump(), texts) == render(texts) for texts in _probes(roles)):
                return template
    except ValueError:
        raise
    except Exception as error:  # templates raise Jinja's errors, and their own, for roles that they do not know
        raise ValueError(first_line(error).rstrip(".")) from error
    raise ValueError("it changes the texts that it prints")


def _probes(roles: tuple[str, ...]) -> list[dict[str, str]]:
    """Each probe in each place, beside plain texts. An instruction is never empty."""
    plain = dict.fromkeys(roles, "x")
    return [{**plain, role: probe} for role in roles for probe in _PROBES if probe or role != SYSTEM]


def _format_of(template: Any) -> _Format:
    flat = isinstance(template, str) and template and not any(sign in template for sign in _STRUCTURED)
    return "flat" if flat else "structured"
