"""Options of a server that feeds slaves."""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Callable
from ipaddress import IPv4Network, IPv6Network
from typing import Any, NamedTuple, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


class NetworkType(click.ParamType["IPv4Network | IPv6Network"]):
    """An address, or a network: ``10.1.2.3``, ``10.1.0.0/16``."""

    name = "network"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> IPv4Network | IPv6Network:
        if isinstance(value, IPv4Network | IPv6Network):
            return value
        try:
            return ipaddress.ip_network(str(value))
        except ValueError:
            self.fail(f"{value!r} is no address and no network", param, ctx)


class HaOptions(NamedTuple):
    """Where slaves connect: (host, port); None: the port after the server's own. And the networks
    that they may come from; empty: any."""

    listen: tuple[str, int] | None
    allowed: tuple[IPv4Network | IPv6Network, ...]

    def place(self, host: str, port: int) -> tuple[str, int]:
        """Where to listen for slaves, beside a server that listens at ``host`` and ``port``."""
        return self.listen or (host, port + 1)


def ha_options(address: click.ParamType[Any]) -> Callable[[F], F]:
    """Gives a command these options, as its argument ``ha``; None: the server has no slaves."""

    def decorate(function: F) -> F:
        @click.option(
            "--ha",
            "is_wanted",
            is_flag=True,
            help="Feed slaves of 4.9.3 and 5.x; brokerRole SYNC_MASTER in broker.conf: sends wait "
            "for one.",
        )
        @click.option(
            "--ha-listen",
            metavar="HOST:PORT",
            type=address,
            help="Where slaves connect; default: the port after that of --listen.",
        )
        @click.option(
            "--ha-allow",
            metavar="ADDRESS",
            multiple=True,
            type=NetworkType(),
            help="Slaves may come from this address or network only; may be given again.",
        )
        @functools.wraps(function)
        def run(
            *arguments: Any,
            is_wanted: bool,
            ha_listen: tuple[str, int] | None,
            ha_allow: tuple[IPv4Network | IPv6Network, ...],
            **options: Any,
        ) -> Any:
            if not is_wanted and (ha_listen or ha_allow):
                raise click.UsageError("--ha-listen and --ha-allow need --ha.")
            ha = HaOptions(ha_listen, ha_allow) if is_wanted else None
            return function(*arguments, ha=ha, **options)

        return run  # type: ignore[return-value]

    return decorate
