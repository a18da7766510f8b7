"""A record's layout is written once, as a schema in formats/: nobody else counts its bytes.

Each module that reads or writes records at a place is searched for numbers and struct codes that a
generated name of `formats.layouts` stands for. What looks like one and is none is listed here, with
what it is.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from formats import layouts
from formats.constants import INT_MAX, LONG_MAX, MAX_TOPIC_LENGTH, MIN_RECORD_SIZE

TOP = Path(__file__).parents[2] / "rmqctl"
#: Modules that know where the parts of a record lie.
MODULES = (
    "engine/log/commitlog.py",
    "engine/record/message.py",
    "engine/record/record.py",
    "engine/scan/batch.py",
    "engine/scan/chain.py",
    "engine/scan/recordcrc.py",
    "engine/scan/scanner.py",
    "engine/start/plan.py",
    "engine/write/assemble.py",
    "engine/write/bulk.py",
    "operations/look/du.py",
    "operations/look/dump.py",
    "operations/verify/decodable.py",
    "operations/verify/log.py",
    "spark/remote/remotefile.py",
    "spark/sink/encode.py",
    "spark/sink/messagecolumns.py",
)
#: Numbers of these modules that are none of a record's, by module.
OTHERS = {
    ("engine/log/commitlog.py", "_LOOKS = 16"): "how often",
    ("engine/log/commitlog.py", "_MANY_FOUND = 64"): "how often",
    ("engine/log/commitlog.py", "keep=4"): "files",
    ("engine/record/message.py", "(127, 0, 0, 1)"): "an address",
    ("engine/record/message.py", "text[:80]"): "characters that an error shows",
    ("engine/record/record.py", "Struct('>iq')"): "an offset message id, which is no part of a log",
    ("operations/look/du.py", "day.month * 100"): "a day as a decimal number",
    ("operations/look/du.py", "number // 100"): "a day as a decimal number",
    ("operations/look/du.py", "number % 100"): "a day as a decimal number",
    ("operations/look/du.py", "number // 100 % 100"): "a day as a decimal number",
    ("operations/verify/log.py", "level[:100]"): "characters that a finding shows",
    ("spark/sink/encode.py", "text[:200]"): "characters that an error shows",
    ("spark/sink/encode.py", "records.buffers()[2]"): "the data of an Arrow array",
    ("spark/sink/messagecolumns.py", "bodies.buffers()[2]"): "the data of an Arrow array",
}
_PREFIXES = layouts.RECORD_PREFIX.values()
#: What a place or size of a record may be written as; below 3 everything is.
NUMBERS = {
    number
    for number in (
        MIN_RECORD_SIZE,
        MAX_TOPIC_LENGTH,
        *(layout.size for layout in _PREFIXES),
        *(field.offset for layout in _PREFIXES for field in layout.fields),
        *(field.size for layout in _PREFIXES for field in layout.fields),
        *(length.limit for tail in layouts.TAIL.values() for length in tail[:2]),
    )
    if number > 2
}


def offences(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of everything that says where or how wide a part of a record is, by hand."""
    tree = ast.parse(source)
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    above = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in docs:
            inside = above[node]
            while isinstance(inside, ast.Slice | ast.UnaryOp):
                inside = above[inside]
            is_place = is_number(node.value) and not is_shift(inside)
            is_item = is_index(node.value) and isinstance(inside, ast.Subscript)
            if is_code(node.value) or is_place or is_item:
                yield node.lineno, ast.unparse(inside)
        if isinstance(node, ast.Call) and is_length_by_hand(node):
            yield node.lineno, ast.unparse(node)


def is_number(value: object) -> bool:
    """An offset, size or limit of a record's field, as a number."""
    return type(value) is int and value in NUMBERS


def is_code(value: object) -> bool:
    """What struct or numpy calls a big-endian type: a store has no other."""
    return isinstance(value, str) and re.fullmatch(r">[0-9a-zA-Z]+", value) is not None


def is_shift(node: ast.AST) -> bool:
    """A power of two, as bounds and sizes of windows are written."""
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.LShift | ast.RShift)


def is_index(value: object) -> bool:
    """A place in unpacked values, or in bytes, beyond the first and the second."""
    return type(value) is int and value > 1


def is_length_by_hand(node: ast.Call) -> bool:
    """``n.to_bytes(2, ...)``, ``bytes((len(n),))``, ``Struct("B")``."""
    name = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
    first = node.args[0] if node.args else None
    if name in ("to_bytes", "Struct"):
        return isinstance(first, ast.Constant)
    return name == "bytes" and isinstance(first, ast.Tuple) and "len(" in ast.unparse(first)


@pytest.mark.parametrize("module", MODULES)
def test_no_module_counts_a_records_bytes(module: str) -> None:
    found = [
        f"{module}:{line}: {text}"
        for line, text in offences((TOP / module).read_text("utf-8"))
        if (module, text) not in OTHERS
    ]
    assert not found, "take these from formats.layouts"


@pytest.mark.parametrize(
    "line",
    [
        "_SYS_FLAG_POSITION = 36",
        "at = position + 28",
        "body_length = values[16]",
        "row = (size, *values[2:6])",
        "last = head[7]",
        "magic = head[4:8]",
        "_SHORT = Struct('>h')",
        "_BYTE = Struct('B')",
        "_PLACE = np.dtype('>i8')",
        "_BORN = layouts.RECORD_PREFIX[0].fields[9].offset",
        "data = size.to_bytes(2, 'big') + text",
        "tail = bytes((len(topic),)) + topic",
        "longest = 0x7FFF",
        "is_v6 = len(address) == 16",
        "keep = data[:-20]",
    ],
)
def test_such_lines_are_found(line: str) -> None:
    """What these modules once said."""
    assert list(offences(line))


def test_what_is_listed_as_something_else_is_there() -> None:
    found = {
        (module, text)
        for module in MODULES
        for _, text in offences((TOP / module).read_text("utf-8"))
    }
    assert found == set(OTHERS)


#: Every integer that Python reads in a source, and more.
_INTEGER = re.compile(r"\b(?:0[xX][\da-fA-F_]*[\da-fA-F]|[1-9](?:_?\d)*)")


def test_javas_limits_are_written_once() -> None:
    """`formats.constants` has them. A mask of bits has the digits of a limit and is none."""
    limits = {number + more for number in (INT_MAX, LONG_MAX) for more in (0, 1)}
    found = []
    for path in sorted(TOP.rglob("*.py")):
        text = path.read_text("utf-8")
        if limits.isdisjoint(int(number, 0) for number in _INTEGER.findall(text)):
            continue  # Most say none, and need no parsing.
        tree = ast.parse(text)
        masks = {
            id(node)
            for mask in ast.walk(tree)
            if (isinstance(mask, ast.BinOp) and isinstance(mask.op, ast.BitAnd))
            or (isinstance(mask, ast.Assign) and ast.unparse(mask.targets[0]).endswith("_MASK"))
            for node in ast.walk(mask)
        }
        found += [
            f"{path.relative_to(TOP)}:{node.lineno}: {node.value}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and node.value in limits and id(node) not in masks
        ]
    assert not found
