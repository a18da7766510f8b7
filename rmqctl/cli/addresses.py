"""``HOST:PORT`` as an argument or option."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import click

#: Characters between two dots of a host's name (RFC 1035): Python refuses longer ones with an error
#: that is none of the network's.
_LONGEST_LABEL = 63


class Address(NamedTuple):
    """Where to listen, or what clients are told."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class AddressType(click.ParamType[Address]):
    """``HOST:PORT``."""

    name = "address"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Address:
        if isinstance(value, Address):
            return value
        host, _, port = str(value).rpartition(":")
        if not re.fullmatch(r"\[?[\w.:-]+\]?", host, re.ASCII) or not re.fullmatch(
            r"[0-9]{1,5}", port, re.ASCII
        ):
            self.fail(f"{value!r} is not HOST:PORT", param, ctx)
        if not all(0 < len(label) <= _LONGEST_LABEL for label in host.removesuffix(".").split(".")):
            self.fail(f"{host!r} is no name of a host", param, ctx)
        if int(port) > 0xFFFF:
            self.fail(f"{port} is no port: 0 to 65535", param, ctx)
        return Address(host.strip("[]"), int(port))


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches it."""
    import ipaddress

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
