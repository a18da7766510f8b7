"""put --from: a stream of messages into a store.

The stream is NDJSON: one object a line, with the fields of :mod:`rmqctl.engine.record.fields`, such
as the rows of messages that other commands print; rows of other types are passed over. A line that
is not a message ends the run with its number; everything before it is stored, and its rows are
yielded.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, starmap
from typing import TYPE_CHECKING, Any, Protocol

from formats import constants
from rmqctl.engine.record.fields import NotAMessage, is_other_row, spelled
from rmqctl.engine.record.message import Host
from rmqctl.engine.record.record import offset_msg_id
from rmqctl.engine.record.status import PutMessageStatus
from rmqctl.engine.write.bulk import Message, PlainMessage
from rmqctl.engine.write.lines import LineDefaults, Lines
from rmqctl.errors import BadInputLine, TopicNotAllowed
from rmqctl.operations.change.messagefields import STORE_HOST
from rmqctl.operations.change.messagemaker import MessageMaker
from rmqctl.operations.change.put import DryPut, append_result_row, would_be_stored

if TYPE_CHECKING:
    from rmqctl.engine.messagestore import MessageStore
    from rmqctl.engine.write.appended import Appended
    from rmqctl.rows.changes import AppendResultRow


#: How orjson tells that the system has no memory for it.
_NO_MEMORY = "Not enough memory"


class NothingStored(BadInputLine):
    """A line is not a message, and none before it is stored: a dry run stores none."""

    template = (
        "{source}, line {line}: {reason}. Nothing was stored: correct the line and try again."
    )


class LineNeedsMemory(BadInputLine):
    """Nothing may be wrong with a line: the process has too little memory for it."""

    template = (
        "{source}, line {line}: {reason}. {so_far}: give the process more memory (`ulimit -v`) and "
        "{then}."
    )
    exit_code = 5


class NoMemory(NotAMessage):
    """A line for which there is too little memory (:exc:`LineNeedsMemory`)."""

    def __init__(self) -> None:
        super().__init__("there is not enough memory for it")


class LineTooLong(ValueError):
    """A line of the input is longer than any may be; the text says what the bound is."""


class Blocks(Protocol):
    """An input whose lines can be read in blocks, too."""

    def __iter__(self) -> Iterator[bytes | None]:
        """The lines, without their ends; None: there is no more for now."""

    def blocks(self) -> Iterator[bytes | None]:
        """The same in blocks of whole lines with their ends, of which the last may have none."""


@dataclass(slots=True)
class BulkPut:
    """What a run has done so far. ``line`` is the last line read, ``refused`` the row of the
    message that ended the run with a status other than PUT_OK, ``passed_over`` how many rows of
    each other type there were. A run that ``is_dry`` stores nothing."""

    source: str
    is_dry: bool = False
    line: int = 0
    stored: int = 0
    refused: AppendResultRow | None = None
    passed_over: Counter[str] = field(default_factory=Counter)
    #: How many messages the lines read so far have.
    messages: int = 0
    #: For each line without a message, how many messages are before it. Lines before the last
    #: stored message are only counted, in ``_passed``.
    _without: deque[int] = field(default_factory=deque)
    _passed: int = 0

    def pass_over(self) -> None:
        """The last line has no message."""
        self._without.append(self.messages)

    def note_stored(self, messages: int) -> None:
        """So many messages more are in the log."""
        self.stored += messages
        while self._without and self._without[0] < self.stored:
            self._without.popleft()
            self._passed += 1

    def refuse(self, row: AppendResultRow, logged: int = 0) -> AppendResultRow:
        """Ends the run with the row of a refused message; adds the line to go on from to it.

        :param logged: how many of its messages are in the log all the same.
        """
        in_log = self.stored + logged
        passed = self._passed + sum(one < in_log for one in self._without)
        row["next_line"] = in_log + passed + 1
        self.refused = row
        return row

    def refusal(self, error: NotAMessage | TopicNotAllowed) -> BadInputLine:
        """The error that ends the run at its last line."""
        if isinstance(error, NoMemory):
            so_far, then = "Nothing was stored", "try again"
            if self.stored:
                so_far = f"The messages before it are stored ({self.stored})"
                then = f"continue with `tail -n +{self.line}`"
            told = {"source": self.source, "line": self.line, "so_far": so_far, "then": then}
            return LineNeedsMemory(reason=str(error), **told)
        return (NothingStored if self.is_dry or not self.stored else BadInputLine)(
            source=self.source,
            line=self.line,
            reason=str(error).rstrip("."),
            stored=self.stored,
            ignored_by=getattr(error, "ignored_by", ""),
        )


def put_lines(
    store: MessageStore,
    lines: Iterable[bytes | None] | Blocks,
    run: BulkPut,
    *,
    maker: MessageMaker | None = None,
    flush: bool = True,
) -> Iterator[Iterator[AppendResultRow]]:
    """Puts every line. Yields rows ``append_result`` in bulks, each when its messages are stored
    (with ``flush``: on disk). A line of None asks to store now what has come.

    The row of a status other than PUT_OK is the last one.

    :raises BadInputLine: a line is no message. What came before it is stored and yielded.
    """
    messages = _messages(lines, run, maker or MessageMaker())
    host_digits: dict[Host, str] = {}
    try:
        for stored, refused, logged in store.append_stream(messages, flush=flush):
            run.note_stored(len(stored))
            # Rows are made as they are taken: thousands at once would only cost memory.
            yield (_stored_row(appended, host_digits) for appended in stored)
            if refused is not None:
                yield iter((run.refuse(append_result_row(refused), logged),))
                return
    except (NotAMessage, TopicNotAllowed) as error:
        raise run.refusal(error) from None


def _messages(
    lines: Iterable[bytes | None] | Blocks, run: BulkPut, maker: MessageMaker
) -> Iterable[Message | None]:
    """The messages of lines. Where their defaults are plain they go on as lines, of which the
    kernel makes records."""
    defaults = _plain_defaults(maker.defaults)
    if defaults is None or not hasattr(lines, "blocks"):
        return messages_of(lines, run, maker)
    return LineStream(lines.blocks(), run, maker, defaults)


def _plain_defaults(values: dict[str, Any]) -> LineDefaults | None:
    """Checked fields as the defaults of lines; None if they make messages that are not plain.

    A born time is none of them: :class:`LineStream` has the clock.
    """
    given = dict(values)
    given.pop("born_timestamp", None)
    given.setdefault("store_host", STORE_HOST)
    given["properties"] = tuple(given.get("properties", {}).items())
    if not given.keys() <= set(LineDefaults._fields):
        return None
    defaults = LineDefaults(**given)
    hosts = defaults.born_host, defaults.store_host
    if any(len(address) != constants.IPV4_SIZE for address, _ in hosts):
        return None
    texts = (defaults.topic or "", defaults.tags, defaults.keys, *chain(*defaults.properties))
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:  # An argument of the command was not UTF-8.
        return None
    return defaults


class LineStream(Lines):
    """Lines on their way into a store, in blocks of whole ones."""

    def __init__(
        self,
        blocks: Iterator[bytes | None],
        run: BulkPut,
        maker: MessageMaker,
        defaults: LineDefaults,
    ) -> None:
        """:param defaults: the maker's, but for a born time."""
        self.defaults = defaults
        born = maker.defaults.get("born_timestamp")
        self.clock = maker.clock if born is None else lambda: born
        self._blocks = blocks
        self._run = run
        self._messages = messages_of(self._each(), run, maker)
        #: What came instead of a block, a pause (None) or an exception, until it is passed on.
        self._pending: list[Exception | None] = []

    def __iter__(self) -> Iterator[Message | None]:
        return self._messages

    def has_lines(self) -> bool:
        while self.at >= len(self.block) and not self._pending:
            try:
                block = next(self._blocks)
            except Exception as error:
                self._pending.append(error)
                return False
            if block is None:
                self._pending.append(None)
            else:
                self.block, self.at = block, 0
        return self.at < len(self.block)

    def taken(self, at: int, lines: int) -> None:
        self.at = at
        self._run.line += lines
        self._run.messages += lines

    def _each(self) -> Iterator[bytes | None]:
        """The lines one by one."""
        while True:
            if self.has_lines():
                start, end = self.at, self.block.find(b"\n", self.at)
                self.at = len(self.block) if end < 0 else end + 1
                yield self.block[start:end] if end >= 0 else self.block[start:]
                continue
            instead = self._pending.pop()
            if isinstance(instead, StopIteration):
                return
            if instead is not None:
                raise instead
            yield None


def check_lines(
    dry: DryPut, lines: Iterable[bytes | None] | Blocks, run: BulkPut, maker: MessageMaker
) -> Iterator[AppendResultRow]:
    """Says what a put of every line would answer. The row of the first message that would be
    refused is the last one. Of ``run`` only the lines are counted.

    :raises NothingStored: a line is no message. Also raises what :meth:`DryPut.check` does.
    """
    messages = _messages(lines, run, maker)
    plain = dry.plain_lines(messages) if isinstance(messages, LineStream) else None
    try:
        for message in messages:
            if message is not None:
                row = dry.check(message.full() if isinstance(message, PlainMessage) else message)
                yield row
                if row["status"] != PutMessageStatus.PUT_OK.value:
                    run.refused = row
                    return
                queue = message.topic, message.queue_id
                # A message that is delayed goes to another queue than plain ones of its topic.
                if plain is not None and queue == (row["topic"], row["queue_id"]):
                    plain.admit(*queue)
            if plain is not None:
                yield from starmap(would_be_stored, plain.take())
    except (NotAMessage, TopicNotAllowed) as error:
        raise run.refusal(error) from None


def _stored_row(appended: Appended, host_digits: dict[Host, str]) -> AppendResultRow:
    """:func:`append_result_row` of a stored message, faster."""
    topic, queue_id, host, offset, size, queue_offset, timestamp = appended
    digits = host_digits.get(host)
    if digits is None:
        digits = host_digits[host] = offset_msg_id(*host, 0)[:-16]
    return {
        "type": "append_result",
        "status": "PUT_OK",
        "msg_id": f"{digits}{offset:016X}",
        "topic": topic,
        "queue_id": queue_id,
        "wrote_offset": offset,
        "wrote_bytes": size,
        "queue_offset": queue_offset,
        "store_timestamp": timestamp,
    }


def messages_of(
    lines: Iterable[bytes | None], run: BulkPut, maker: MessageMaker
) -> Iterator[Message | None]:
    """The messages of lines, one by one; None for each None. Lines of other rows are counted in
    ``run``. :raises NotAMessage, TopicNotAllowed: the last line read is no message.
    :raises NoMemory: there is no memory for it."""
    import orjson

    loads, make = orjson.loads, maker.make
    try:
        for line in lines:
            if line is None:
                yield None
                continue
            run.line += 1
            if not line or line.isspace():
                run.pass_over()
                continue
            try:
                given = loads(line)
            except orjson.JSONDecodeError as error:
                if str(error).startswith(_NO_MEMORY):
                    raise NoMemory from None
                hint = "; --format ndjson prints a row a line" if line.strip() == b"[" else ""
                raise NotAMessage(f"not JSON: {error}{hint}") from None
            except MemoryError:
                raise NoMemory from None
            if type(given) is not dict:
                raise NotAMessage(f"not a JSON object but {spelled(given)}")
            if "type" in given and is_other_row(given, ignore_unknown=maker.ignore_unknown):
                run.passed_over[given["type"]] += 1
                run.pass_over()
                continue
            try:
                message = make(given)
            except MemoryError:
                raise NoMemory from None
            run.messages += 1
            yield message
    except LineTooLong as error:
        run.line += 1  # One that does not end is one of them.
        raise NotAMessage(str(error)) from None
    except MemoryError:
        run.line += 1  # One that could not be read is one of them, too.
        raise NoMemory from None
