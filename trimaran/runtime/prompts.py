"""The words of a prompt before a text."""

from __future__ import annotations

from collections.abc import Mapping

# One text, or a pair of texts.
Text = str | tuple[str, str]


def prompt_words(prompts: Mapping[str, str], default: str, name: str | None) -> str:
    """What is put before a text: the words of the named prompt, or of the default one. Raises ValueError."""
    if name is None:
        return prompts.get(default, "")
    if name not in prompts:
        known = f"Known: {', '.join(prompts)}." if prompts else "This model has no prompts."
        raise ValueError(f"Unknown prompt {name[:80]!r}. {known}")
    return prompts[name]


def prompted(text: Text, words: str) -> Text:
    """The text with these words before it; of a pair the first text, as sentence-transformers does."""
    return words + text if isinstance(text, str) else (words + text[0], text[1])
