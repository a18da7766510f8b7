"""The metrics of a server in the text format of Prometheus (version 0.0.4).

The format is lines of a name, labels and a number. It is written without a library, which would
keep the numbers a second time (docs/decisions/0003-runtime-dependencies.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from formats.remotingcodes import RequestCode, ResponseCode
from rmqctl.engine.store import Store
from rmqctl.serve.broker import Broker
from rmqctl.serve.processors.queues import queue_of

_Labels = dict[str, str]
_REQUESTS = {int(code): code.name for code in RequestCode}
_ANSWERS = {int(code): code.name for code in ResponseCode}
#: Most pairs of a group and a topic with a lag: Prometheus keeps a series for each.
_MOST_LAGS = 10_000


class Numbers(NamedTuple):
    """What a server has counted. ``lags`` has topic, group, and committed offsets by queue."""

    values: list[tuple[str, str, str, list[tuple[_Labels, float]]]]
    lags: list[tuple[str, str, dict[int, int]]]


def numbers_of(broker: Broker, connections: int, connections_so_far: int) -> Numbers:
    """The numbers of a broker. It must be called in the broker's thread."""
    served, counted = broker.served, broker.served.statistics
    plain: list[tuple[str, str, str, float]] = [
        ("connections", "gauge", "Connections now.", connections),
        ("connections_total", "counter", "Connections so far.", connections_so_far),
        ("messages_stored_total", "counter", "Messages that the log got.", counted.put.total),
        ("bytes_stored_total", "counter", "Bytes of log that they take.", counted.put_bytes),
        ("send_failures_total", "counter", "Sends that were not stored.", counted.put_failed),
        ("messages_sent_total", "counter", "Messages pulled.", counted.transferred.total),
        ("parked_pulls", "gauge", "Pulls that wait for a message.", len(served.parked)),
        ("topics", "gauge", "Topics that are served.", len(served.topics)),
        (
            "consumer_groups_online",
            "gauge",
            "Groups with a connected consumer.",
            len(served.clients.consumers),
        ),
        (
            "producer_groups_online",
            "gauge",
            "Groups with a connected producer.",
            len(served.clients.producers),
        ),
    ]
    values = [(name, kind, text, [(_Labels(), value)]) for name, kind, text, value in plain]
    pulls: list[tuple[_Labels, float]] = [
        ({"result": "found"}, counted.found.total),
        ({"result": "empty"}, counted.missed.total),
    ]
    values.append(("pulls_total", "counter", "Pulls answered by the store.", pulls))
    answers: list[tuple[_Labels, float]] = [
        ({"request": request_name(code), "answer": answer_name(answer)}, count)
        for (code, answer), count in sorted(broker.answers.items(), key=_order)
    ]
    values.append(("requests_total", "counter", "Requests, by what was answered.", answers))
    lags = [
        (group, topic, dict(offsets)) for topic, group, offsets in served.offsets.of_all(_MOST_LAGS)
    ]
    return Numbers(values, lags)


def text_of(numbers: Numbers, store: Store) -> str:
    """The text. Any thread may call it: it reads from the store where queues end.

    :raises RmqctlError, OSError: the store cannot tell.
    """
    log: list[tuple[str, str, float]] = [
        ("log_min_offset_bytes", "Physical offset of the first byte.", store.min_offset),
        ("log_max_offset_bytes", "Physical offset behind the last.", store.max_offset),
    ]
    values = [(name, "gauge", text, [(_Labels(), value)]) for name, text, value in log]
    lags = list(_lags(numbers.lags, store))
    text = "Messages that a group has not committed."
    values.append(("consumer_lag_messages", "gauge", text, lags))
    return "".join(_lines([*numbers.values, *values]))


def _lags(
    groups: Iterable[tuple[str, str, dict[int, int]]], store: Store
) -> Iterator[tuple[_Labels, float]]:
    for group, topic, offsets in groups:
        queues = ((queue_of(store, topic, n), offset) for n, offset in offsets.items())
        behind = sum(max(q.max_offset - offset, 0) for q, offset in queues if q is not None)
        yield {"group": group, "topic": topic}, behind


def _order(one: tuple[tuple[int, int | None], int]) -> tuple[int, int]:
    """The sort key of answers: connections that were closed without an answer come first."""
    (code, answer), _ = one
    return code, -2 if answer is None else answer


def request_name(code: int) -> str:
    """Java's name of a request code; ``other`` for unknown ones, of which clients may send any."""
    return _REQUESTS.get(code, "other")


def answer_name(code: int | None) -> str:
    """Java's name of an answer's code. None: the connection was closed without an answer."""
    if code is None:
        return "none"
    return _ANSWERS.get(code, "other")


def _lines(
    values: Iterable[tuple[str, str, str, list[tuple[_Labels, float]]]],
) -> Iterator[str]:
    for name, kind, text, samples in values:
        yield f"# HELP rmqctl_{name} {text}\n# TYPE rmqctl_{name} {kind}\n"
        for labels, value in samples:
            inner = ",".join(f'{label}="{_escaped(of)}"' for label, of in labels.items())
            yield f"rmqctl_{name}{{{inner}}} {value}\n" if inner else f"rmqctl_{name} {value}\n"


def _escaped(text: str) -> str:
    """A label's value, escaped. Names in a damaged file may hold anything: characters that are not
    printable are replaced."""
    printable = "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text)
    return printable.replace("\\", "\\\\").replace('"', '\\"')
