"""The properties of a record: entries of a name and a value, as text with two control characters.

The stored form is `name 0x01 value 0x02 name 0x01 value`. RocketMQ up to 4.9.0 and from 5.2.0 on
ends the last entry with 0x02 too, the versions between do not; readers take both. This schema keeps
every byte apart that can be told apart, so parsing and building give back exactly what was stored,
whatever it was. What RocketMQ makes of the bytes is `formats.text.decode_properties`.
"""

from typing import Any

from construct import Adapter, Container, GreedyBytes, ListContainer

from formats.declare import Context, field
from formats.text import join_properties, split_properties

ENTRY_FIELDS = (
    field(
        "name",
        GreedyBytes,
        "up to the first 0x01; RocketMQ drops the entry when it is empty",
        "k",
        "name",
    ),
    field(
        "value",
        GreedyBytes,
        "from the first 0x01 to the next 0x02 or the end, and nothing when there is no 0x01;"
        " RocketMQ drops the entry when it is empty, and lets the last of several values win",
        "v",
        "value",
    ),
)


class _Entries(Adapter):  # type: ignore[misc]
    def _decode(self, obj: bytes, context: Context, path: str) -> Any:
        return ListContainer(
            Container(name=name, value=value) for name, value in split_properties(obj)
        )

    def _encode(self, obj: Any, context: Context, path: str) -> bytes:
        return join_properties((entry["name"], entry["value"]) for entry in obj)


PROPERTIES = _Entries(GreedyBytes)
"""All entries in stored order; a trailing 0x02 shows as a last entry without name and value."""
