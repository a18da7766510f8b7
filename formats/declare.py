"""Declares the schemas of this package: construct `Struct`s whose fields explain themselves.

`field` names a construct and adds what the reference pages need: the field's meaning and its names
in Java. `bound` states a limit between fields. It is checked when parsing, and never when building,
so tests can build damaged data with the same schema.
"""

from collections.abc import Callable, Iterable
from typing import Any

from construct import Bytes, Construct, Renamed, Subconstruct, ValidationError, stream_write

Context = Any
"""A construct Container: the fields parsed or given so far."""


class Field(Renamed):  # type: ignore[misc]
    """A named construct with its meaning (`docs`) and Java's spellings (`java`)."""

    def __init__(self, name: str, subcon: Construct, meaning: str, java: tuple[str, ...]) -> None:
        super().__init__(subcon, newname=name, newdocs=meaning)
        self.java = java


def field(name: str, subcon: Construct, meaning: str, *java: str) -> Field:
    """Return `subcon` as the field `name`; `java` lists the names it has in RocketMQ's source."""
    return Field(name, subcon, meaning, java)


class Content(Bytes):  # type: ignore[misc]
    """Bytes behind a length that is a field of its own.

    Parsing reads as many as the length says. Building writes all given bytes, so a wrong length can
    be written too.
    """

    def __init__(self, length_name: str) -> None:
        super().__init__(lambda context: context[length_name])

    def _build(self, obj: bytes, stream: Any, context: Context, path: str) -> bytes:
        stream_write(stream, obj, len(obj), path)
        return obj


class Chosen(Construct):  # type: ignore[misc]
    """One of several constructs, chosen by the fields before it; `choices` lists all of them."""

    def __init__(
        self,
        choose: Callable[[Context], Construct],
        choices: Callable[[], Iterable[Construct]],
    ) -> None:
        super().__init__()
        self.choose = choose
        self.choices = choices

    def _parse(self, stream: Any, context: Context, path: str) -> Any:
        return self.choose(context)._parsereport(stream, context, path)

    def _build(self, obj: Any, stream: Any, context: Context, path: str) -> Any:
        return self.choose(context)._build(obj, stream, context, path)

    def _sizeof(self, context: Context, path: str) -> int:
        size: int = self.choose(context)._sizeof(context, path)
        return size


class Bound(Construct):  # type: ignore[misc]
    """A limit on a field that has been parsed; takes no bytes."""

    def __init__(
        self,
        name: str,
        limits: Callable[[Context], tuple[int, int]],
        show: Callable[[int], str],
    ) -> None:
        super().__init__()
        self.show = show
        self.field_name = name
        self.limits = limits
        # A Struct builds a nameless part without a value only when the part says that this is fine.
        self.flagbuildnone = True

    def _parse(self, stream: Any, context: Context, path: str) -> None:
        value = context[self.field_name]
        low, high = self.limits(context)
        if not low <= value <= high:
            expected = self.show(low) if low == high else f"{self.show(low)} to {self.show(high)}"
            message = f"{self.field_name} is {self.show(value)}, expected {expected}"
            raise ValidationError(message, path=path)

    def _build(self, obj: Any, stream: Any, context: Context, path: str) -> None:
        return None

    def _sizeof(self, context: Context, path: str) -> int:
        return 0


def bound(
    name: str,
    limits: Callable[[Context], tuple[int, int]],
    show: Callable[[int], str] = str,
) -> Bound:
    """Refuse to parse on when the field `name` lies outside `limits(context)`, both inclusive.

    The refusal is construct's ValidationError, in which numbers are written by `show`.
    """
    return Bound(name, limits, show)


def bytes_left(context: Context) -> int:
    """Return how many bytes the stream that is being parsed still holds."""
    stream = context._io
    here: int = stream.tell()
    end: int = stream.seek(0, 2)
    stream.seek(here)
    return end - here


def resolve(construct: Construct) -> Construct:
    """Return the construct inside a field, without name and default."""
    while isinstance(construct, Subconstruct):
        construct = construct.subcon
    return construct
