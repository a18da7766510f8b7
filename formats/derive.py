"""Turns a schema of this package into its fast equivalents: a layout, a struct, a numpy dtype.

Only the fixed-size fields of a schema can be derived; a schema whose sizes depend on other fields
needs those as context (`sys_flag` for the hosts of a record). Byte order is big-endian throughout.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from construct import Bytes, Construct, FormatField, Struct

from formats.declare import Field as DeclaredField
from formats.declare import resolve
from formats.layouts import Field, Layout, Length, Tail

if TYPE_CHECKING:
    import numpy as np

    from formats.commitlog import Version

# construct says "long" where struct's standard sizes give "int" the same four bytes.
_STRUCT_CODES = {"l": "i", "L": "I"}


def layout_of(schema: Struct, name: str, **context: Any) -> Layout:
    """Return where each field of `schema` lies and how `struct` reads it.

    Raises TypeError for a field that has no fixed size under `context`.
    """
    fields = []
    offset = 0
    for subcon in schema.subcons:
        if not isinstance(subcon, DeclaredField):
            continue
        size = subcon.sizeof(**context)
        fields.append(Field(subcon.name, offset, size, struct_code(subcon, size)))
        offset += size
    layout_format = ">" + "".join(field.code for field in fields)
    return Layout(name, layout_format, offset, tuple(fields))


def length_of(construct: Construct, limit: int) -> Length:
    """Return how to read a length field whose largest value is `limit`."""
    size = construct.sizeof()
    return Length(size, struct_code(construct, size), limit)


def tail_of(version: Version) -> Tail:
    """Return the part behind the body of a record of `version`."""
    return Tail(
        length_of(version.topic_length, version.longest_topic),
        length_of(version.properties_length, version.longest_properties),
        version.what,
        version.since,
    )


def struct_of(layout: Layout) -> struct.Struct:
    """Return the compiled struct that reads every field of `layout` in one call."""
    return struct.Struct(layout.format)


def dtype_of(layout: Layout) -> np.dtype[np.void]:
    """Return the packed big-endian dtype of `layout`; plain bytes become a `V` field."""
    import numpy as np

    # Not "S": numpy would strip the trailing zero bytes of an address.
    codes = [
        f"V{field.size}" if field.code.endswith("s") else f">{field.code}"
        for field in layout.fields
    ]
    return np.dtype(
        {
            "names": [field.name for field in layout.fields],
            "formats": codes,
            "offsets": [field.offset for field in layout.fields],
            "itemsize": layout.size,
        }
    )


def struct_code(construct: Construct, size: int) -> str:
    """Return what `struct` calls the type of a fixed-size field; `size` counts for plain bytes."""
    construct = resolve(construct)
    if isinstance(construct, FormatField):
        code: str = construct.fmtstr.removeprefix(">")
        return _STRUCT_CODES.get(code, code)
    if isinstance(construct, Bytes):
        return f"{size}s"
    raise TypeError(f"no struct code for {construct!r}")
