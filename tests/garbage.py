"""Keeps the garbage collector quick in a process that holds every library."""

from __future__ import annotations

import gc


def freeze_libraries() -> None:
    """Keep the collector off all objects that there are now.

    An export collects garbage twice, and visiting the objects of all libraries takes half a second each time. Fusing a
    graph unfreezes every object, so this is called before each export and not once a session.
    """
    gc.freeze()
