"""How a type of row is declared: as a ``TypedDict`` whose fields have a unit and a meaning.

A field is ``name: Annotated[type, UNIT, "meaning"]``. The unit is left out if the value has none.
The field is in ``NotRequired`` if some rows do not have it. mypy checks the rows that are built
against the declaration. :func:`fields_of` reads the declaration for everything else: the reference
pages, and the columns of the Spark source.
"""

from functools import cache
from types import UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NamedTuple,
    NotRequired,
    get_args,
    get_origin,
    get_type_hints,
)


class Unit(NamedTuple):
    """What a number counts, or measures."""

    name: str


class Bits(NamedTuple):
    """How wide an integer is in the store."""

    width: int


BYTES: Final = Unit("bytes")
FILES: Final = Unit("files")
HOURS: Final = Unit("h")
ITEMS: Final = Unit("items")
MESSAGES: Final = Unit("messages")
MILLISECONDS: Final = Unit("ms")
PERCENT: Final = Unit("%")
QUEUES: Final = Unit("queues")
SECONDS: Final = Unit("s")
SLOTS: Final = Unit("slots")
TOPICS: Final = Unit("topics")
UNITS: Final = Unit("units")

#: An integer that fits Java's ``int``. Every other integer counts as 64 bits wide.
Int32 = Annotated[int, Bits(32)]

_JSON_TYPES: Final[dict[Any, str]] = {
    int: "integer",
    float: "number",
    str: "string",
    bool: "boolean",
    type(None): "null",
    list[str]: "array of strings",
    list[int]: "array of integers",
    dict[str, str]: "object of strings",
    Any: "any",
}


class Field(NamedTuple):
    """One field of a row. ``types`` are the types that a value may have, including that of None.
    ``bits`` is the width of an integer: 64 unless it is declared. ``unit`` is empty if the field
    has none."""

    name: str
    types: tuple[Any, ...]
    bits: int
    unit: str
    meaning: str
    is_optional: bool

    @property
    def json_type(self) -> str:
        """The type as the reference pages spell it: ``integer or null, optional``."""
        names = " or ".join(_JSON_TYPES[kind] for kind in self.types)
        return f"{names}, optional" if self.is_optional else names


class Kind(NamedTuple):
    """A type of row. ``heading`` is its section in the reference: the row's ``type``, followed by
    the command in parentheses if the rows of this ``type`` differ between commands.

    :param row: the ``TypedDict``. Its docstring says what the row is.
    :param printed_by: the commands that print it, if the reference names them. A test compares
        them with the helps.
    """

    heading: str
    row: type
    printed_by: tuple[str, ...] = ()


@cache
def fields_of(row: type) -> tuple[Field, ...]:
    """The fields of a row's ``TypedDict`` in the order in which they are printed."""
    hints = get_type_hints(row, include_extras=True)
    return tuple(_field(name, hint) for name, hint in hints.items())


def _field(name: str, hint: Any) -> Field:
    is_optional = get_origin(hint) is NotRequired
    if is_optional:
        (hint,) = get_args(hint)
    if get_origin(hint) is Literal:
        (value,) = get_args(hint)
        return Field(name, (str,), 0, "", f"`{value}`", is_optional)
    kind, *about = get_args(hint)
    bits = next((each.width for each in about if isinstance(each, Bits)), 64)
    unit = next((each.name for each in about if isinstance(each, Unit)), "")
    (meaning,) = (each for each in about if type(each) is str)
    types = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    return Field(name, types, bits, unit, meaning, is_optional)
