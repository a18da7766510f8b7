"""How a path of a store is told."""

from __future__ import annotations

from pathlib import Path


def shown(root: Path, path: Path) -> str:
    """A path as rows, findings and errors have it: relative to the store if it lies in the
    store."""
    return str(path.relative_to(root) if path.is_relative_to(root) else path)
