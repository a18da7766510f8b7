"""``rmqctl serve``."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from rmqctl.cli.addresses import Address, AddressType
from rmqctl.cli.command import command as make
from rmqctl.cli.haoptions import HaOptions, ha_options
from rmqctl.cli.options import common
from rmqctl.cli.output import RowWriter
from rmqctl.cli.serving import committed_rows, flush_of, listening_row, note_what_is_odd
from rmqctl.cli.settings import Settings

if TYPE_CHECKING:
    import ssl

    from rmqctl.serve.broker import Broker
    from rmqctl.serve.hasockets import HaServer
    from rmqctl.serve.sockets import Server
    from rmqctl.serve.state.owntopics import BrokerSwitches

_LISTEN = "127.0.0.1:10911"
#: Seconds for which a thread may keep others from running. Each send goes from the sockets' thread
#: to the one that writes, and back: with Python's own 0.005 one of a hundred waits for that.
_SWITCH_INTERVAL = 0.0005


class _Place(NamedTuple):
    """Where and how clients are listened to."""

    listen: Address
    has_vip_port: bool
    tls: ssl.SSLContext | None
    metrics_port: int | None
    access_log: Path | None


@make(
    "serve",
    examples=[
        "rmqctl serve --store DIR --read-only",
        "rmqctl serve --store DIR --broker-conf broker.conf",
        "rmqctl serve --read-only --listen 0.0.0.0:10911 --advertise 10.1.2.3:10911",
        "rmqctl serve --acl-file plain_acl.yml --tls-cert cert.pem --tls-key key.pem",
        "rmqctl serve --read-only --listen 127.0.0.1:0 --format ndjson",
        "rmqctl serve --store DIR --broker-conf broker.conf --ha --ha-allow 10.1.2.4",
    ],
    exits={
        0: "stopped by SIGTERM",
        1: "likewise; offsets of groups could not be written, and are printed",
        4: "the store is in use by a broker, or read-only",
        5: "cannot continue: damaged or unsupported data, or a disk that is full or fails",
        6: "groups would consume again: say --offsets-beyond-end",
        130: "stopped with Ctrl-C",
    },
)
@click.option("--read-only", is_flag=True, help="Change no byte; sends are refused.")
@click.option(
    "--listen",
    metavar="HOST:PORT",
    type=AddressType(),
    default=_LISTEN,
    show_default=True,
    help="Where clients connect; port 0: a free one.",
)
@click.option(
    "--advertise",
    metavar="HOST:PORT",
    type=AddressType(),
    help="Address that clients are told to connect to. Default: the one they used.",
)
@click.option(
    "--broker-name", metavar="NAME", help="Name in routes; default: the broker's own, if known."
)
@click.option(
    "--cluster-name",
    metavar="NAME",
    help="Cluster name in routes; default: the broker's own, if known.",
)
@click.option(
    "--offsets-beyond-end",
    metavar="WHAT",
    type=click.Choice(("refuse", "end")),
    default="refuse",
    show_default=True,
    help="For groups whose offset is past the end of its queue: refuse (do not start) or end (they "
    "continue at the end).",
)
@click.option(
    "--vip-port",
    is_flag=True,
    help="Also listen at the port two below: clients before 4.5.1 and slaves ask there.",
)
@click.option(
    "--acl-file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Accounts and their permissions: a broker's plain_acl.yml.",
)
@click.option(
    "--tls-cert",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Speak TLS, and nothing else: the certificate, PEM.",
)
@click.option("--tls-key", metavar="FILE", type=click.Path(path_type=Path), help="Its key, PEM.")
@click.option(
    "--metrics-port",
    metavar="PORT",
    type=click.IntRange(0, 0xFFFF),
    help="Port for Prometheus to ask for /metrics, on the host of --listen.",
)
@click.option(
    "--access-log",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Append a line of JSON for each request; SIGHUP begins the file anew.",
)
@click.option(
    "--flush",
    metavar="HOW",
    type=click.Choice(("sync", "async")),
    help="sync: on disk before a send is answered. async: half a second later or so. Default: as "
    "flushDiskType of the broker.conf says, else sync.",
)
@click.option("--no-delivery", is_flag=True, help="Leave delayed messages where they wait.")
@click.option(
    "--no-checks", is_flag=True, help="Ask no producer about transactions that it has not ended."
)
@ha_options(AddressType())
@common
def command(
    settings: Settings,
    ha: HaOptions | None,
    read_only: bool,
    listen: Address,
    advertise: Address | None,
    broker_name: str | None,
    cluster_name: str | None,
    offsets_beyond_end: str,
    vip_port: bool,
    flush: str | None,
    no_delivery: bool,
    no_checks: bool,
    acl_file: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    metrics_port: int | None,
    access_log: Path | None,
) -> int:
    """Answer RocketMQ's clients from a store, as a broker does.

    It is broker and name server in one: clients use the address as that of their name server.
    Consumers read by tags or SQL92, key, id, offset or time. A message is on disk before its send
    is answered; with --flush async it is soon after: a kill still loses nothing, but a loss of
    power may. With --read-only no byte changes: sends are refused, and what consumers commit stays
    in memory, and is printed at the end as rows of type committed_offset. A row of type listening
    says that clients can connect; with -v, notes say which clients connect, and which are cut off.
    SIGTERM and Ctrl-C stop it. Without --acl-file nothing is authenticated: anyone who reaches the
    address can read the store.
    """
    from rmqctl.engine.messagestore import system_clock
    from rmqctl.serve.broker import Broker
    from rmqctl.serve.processors.checks import Checks
    from rmqctl.serve.processors.delivery import Delivery
    from rmqctl.serve.processors.request import Served
    from rmqctl.serve.state.accounts import load_accounts

    place = _Place(listen, vip_port, _tls(tls_cert, tls_key), metrics_port, access_log)
    accounts = None if acl_file is None else load_accounts(acl_file)
    conf = _conf(settings)
    _check_unchanged(settings, place, ha, may_change=not read_only)
    with settings.open(writable=not read_only, **_changes(settings, flush, read_only)) as store:
        served = Served.of(
            store,
            broker_name=broker_name or conf.get("brokerName"),
            cluster_name=cluster_name or conf.get("brokerClusterName"),
            switches=_switches(conf),
            answers_first=flush_of(store) == "async",
            advertise=str(advertise) if advertise else None,
            host_name=re.sub(r"[^\w-]", "-", socket.gethostname(), flags=re.ASCII) or "localhost",
            ends_offsets=offsets_beyond_end == "end",
            clock=system_clock,
            accounts=accounts,
        )
        note_what_is_odd(settings, store, served, listen, ha)
        with settings.writer("listening", live=True) as writer:
            delivery = None if read_only or no_delivery else Delivery(store)
            checks = None if read_only or no_checks else Checks(served)
            broker = Broker(served, delivery, checks, tells_access=access_log is not None)
            return asyncio.run(_serve(settings, broker, place, ha, writer))


def _switches(conf: Mapping[str, str]) -> BrokerSwitches:
    from rmqctl.serve.state.owntopics import BrokerSwitches

    return BrokerSwitches.of(conf)


def _check_unchanged(
    settings: Settings, place: _Place, ha: HaOptions | None, *, may_change: bool
) -> None:
    """What is refused before opening for writing brings the store in order.

    :raises ConfigFileUnreadable: a file of config/ is broken. :raises UsageError: as of
        :func:`_check_access_log`. :raises CannotListen: as of :func:`_check_free`.
    """
    from rmqctl.engine.messagestore import MessageStore
    from rmqctl.engine.services.schedule import load_delay_offsets
    from rmqctl.serve.processors.request import Served

    _check_access_log(settings, place.access_log)
    load_delay_offsets(settings.root)
    with MessageStore(settings.root, settings.config) as unchanged:
        Served.of(unchanged)
    if may_change:
        _check_free(place, ha)


def _check_free(place: _Place, ha: HaOptions | None) -> None:
    """:func:`~rmqctl.serve.listening.check_free` wherever the port is known."""
    from rmqctl.serve.listening import check_free
    from rmqctl.serve.sockets import VIP_PORT_DISTANCE

    host, port = place.listen
    asked = [(host, port, "--listen")]
    if place.has_vip_port and port:
        asked.append((host, port - VIP_PORT_DISTANCE, "--listen"))
    if place.metrics_port is not None:
        asked.append((host, place.metrics_port, "--metrics-port"))
    if ha is not None and (port or ha.listen):
        asked.append((*ha.place(host, port), "--ha-listen"))
    for one in asked:
        check_free(*one)


def _check_access_log(settings: Settings, path: Path | None) -> None:
    """:raises UsageError: it would become a part of the store, where a broker may delete it, and of
    which --read-only says that nothing is changed."""
    from rmqctl.cli.outside import check_outside

    if path is not None:
        check_outside("--access-log", path, [settings])


async def _serve(
    settings: Settings, broker: Broker, place: _Place, ha: HaOptions | None, writer: RowWriter
) -> int:
    """Serves until a signal comes; the exit code."""
    from rmqctl.cli.accesslog import AccessLog
    from rmqctl.serve.scrape import Scraped
    from rmqctl.serve.sockets import Server, make_room

    served = broker.served
    sys.setswitchinterval(_SWITCH_INTERVAL)
    server = Server(
        broker, lambda text: settings.note(f"note: {text}"), make_room(), settings.detail
    )
    address = await server.listen(*place.listen, has_vip_port=place.has_vip_port, tls=place.tls)
    slaves = None if ha is None else await _feed_slaves(server, ha, address)
    stopped_by: list[int] = []

    def stop(number: int) -> None:
        stopped_by.append(number)
        server.stop()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    log = None
    if place.access_log is not None:
        log = AccessLog(place.access_log, server.trouble)
        server.accessed = log.write
        loop.add_signal_handler(signal.SIGHUP, log.reopen)
    scraped, metrics = Scraped(server), None
    if place.metrics_port is not None:
        metrics = await scraped.listen(place.listen.host, place.metrics_port)
        settings.note(f"note: metrics are at http://{metrics}/metrics")
    writer.row(listening_row(served, address, slaves, metrics))
    writer.flush()
    await server.run()
    if slaves is not None:
        await slaves.close()
    scraped.close()
    if log is not None:
        log.close()
    rows = committed_rows(served)
    for row in rows:
        writer.row(row)
    writer.summary(
        connections=server.connections,
        requests=server.broker.requests,
        committed_offsets=len(rows),
    )
    if stopped_by[:1] == [signal.SIGINT]:
        return 130
    # Whoever starts a broker next has to know what the disk did not take.
    return int(bool(rows) and served.store.writable)


async def _feed_slaves(server: Server, ha: HaOptions, address: str) -> HaServer:
    """Has slaves come, too, beside a server that listens at an address."""
    from rmqctl.serve.hasockets import HaServer

    slaves = HaServer(server, ha.allowed)
    host, _, port = address.rpartition(":")
    await slaves.listen(*ha.place(host.strip("[]"), int(port)))
    return slaves


def _conf(settings: Settings) -> dict[str, str]:
    """What the ``broker.conf`` says, if there is one."""
    if not settings.broker_conf:
        return {}
    from rmqctl.engine.settings.properties import properties
    from rmqctl.engine.settings.storeconfig import read_broker_conf

    text = read_broker_conf(settings.broker_conf)
    return {one.name: one.value for one in properties(text, settings.broker_conf)}


def _tls(cert: Path | None, key: Path | None) -> ssl.SSLContext | None:
    from rmqctl.serve.tls import tls_context

    if (cert is None) != (key is None):
        raise click.UsageError("--tls-cert and --tls-key go together.")
    return None if cert is None or key is None else tls_context(cert, key)


def _changes(settings: Settings, flush: str | None, read_only: bool) -> dict[str, Any]:
    """What holds for what is sent. A broker that is told nothing answers first; here that has to be
    said. :raises UsageError: nothing is sent."""
    if read_only:
        if flush is not None:
            raise click.UsageError("--flush is for what is sent, and --read-only takes nothing.")
        return {}
    if flush is None and settings.config.is_explicit("flush_disk_type"):
        return {}
    return {"flush_disk_type": "ASYNC_FLUSH" if flush == "async" else "SYNC_FLUSH"}
