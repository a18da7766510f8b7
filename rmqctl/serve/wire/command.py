"""``RemotingCommand``: one request or answer, whatever the form of its header."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from formats.remotingcodes import VERSION_4_9_3, CommandFlag, SerializeType

#: As plain numbers: each frame is asked for both.
_RESPONSE, _ONEWAY = int(CommandFlag.RESPONSE), int(CommandFlag.ONEWAY)


_NO_FIELDS: Mapping[str, str] = MappingProxyType({})
_LANGUAGE = "JAVA"


class RemotingCommand(NamedTuple):
    """One command. ``ext_fields`` are those of the request's own header, all of them strings;
    ``body`` is empty where there is none: RocketMQ does not tell these apart. ``language`` is
    empty where the sender's is not known."""

    code: int
    opaque: int = 0
    flag: int = 0
    language: str = _LANGUAGE
    version: int = VERSION_4_9_3
    remark: str | None = None
    ext_fields: Mapping[str, str] = _NO_FIELDS
    body: bytes = b""
    serialize_type: SerializeType = SerializeType.JSON

    @property
    def is_response(self) -> bool:
        return bool(self.flag & _RESPONSE)

    @property
    def is_oneway(self) -> bool:
        return bool(self.flag & _ONEWAY)

    def answer(
        self,
        code: int,
        remark: str | None = None,
        ext_fields: Mapping[str, object] | None = None,
        body: bytes = b"",
    ) -> RemotingCommand:
        """The answer to this request, with a header of the same form. Values of ``ext_fields`` are
        written as Java writes them."""
        fields = _NO_FIELDS
        if ext_fields:
            fields = {
                name: value if type(value) is str else java_text(value)
                for name, value in ext_fields.items()
            }
        # By place: each answer comes here, and names cost as much again.
        return RemotingCommand(
            int(code),
            self.opaque,
            _RESPONSE,
            _LANGUAGE,
            VERSION_4_9_3,
            remark,
            fields,
            body,
            self.serialize_type,
        )


def java_text(value: object) -> str:
    """A value of a header as ``toString`` gives it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
