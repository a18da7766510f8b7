"""Whoever hands an array to another function finds in words what it must be."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

import pytest

TOP = Path(__file__).parents[2]
ROOMS = ("rmqctl/engine/scan", "rmqctl/engine/index", "rmqctl/engine/dispatch")
#: What an annotation calls an array, and what its docstring says of one.
_ARRAY = re.compile(r"\b(NDArray|Ints|Bytes|Codes)\b")
_KIND = re.compile(r"\b(u?int(8|32|64)|bool|uint8|structured|dtype)\b")


def described(path: Path) -> Iterator[tuple[str, str]]:
    """Name and docstring of public functions that take or give arrays, and of classes whose fields
    are some; a method is described by its class as well."""
    tree = ast.parse(path.read_text("utf-8"))
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            doc = ast.get_docstring(node) or ""
            fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
            if any(_ARRAY.search(ast.unparse(field.annotation)) for field in fields):
                yield node.name, doc
            for method in node.body:
                if is_public(method) and _ARRAY.search(signature(method)):
                    yield f"{node.name}.{method.name}", f"{doc} {ast.get_docstring(method) or ''}"
        elif is_public(node) and _ARRAY.search(signature(node)):
            yield node.name, ast.get_docstring(node) or ""


def is_public(node: ast.stmt) -> TypeGuard[ast.FunctionDef]:
    return isinstance(node, ast.FunctionDef) and not node.name.startswith("_")


def signature(node: ast.FunctionDef) -> str:
    arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
    parts = [argument.annotation for argument in arguments] + [node.returns]
    return " ".join(ast.unparse(part) for part in parts if part is not None)


@pytest.mark.parametrize("room", ROOMS)
def test_arrays_are_described(room: str) -> None:
    found = [
        (path.name, name, doc)
        for path in sorted((TOP / room).glob("*.py"))
        for name, doc in described(path)
    ]
    assert found
    silent = [f"{file}: {name}" for file, name, doc in found if not _KIND.search(doc)]
    assert not silent, "say dtype, shape and order in the docstring"
