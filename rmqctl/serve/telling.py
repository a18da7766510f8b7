"""What a server tells its operator, and its clients, of errors."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rmqctl.engine.files.paths import COMMIT_LOG
from rmqctl.errors import SystemRefused

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from rmqctl.engine.store import Store

#: Milliseconds after which a cause is told again if it was not met meanwhile.
_CALM = 60_000
#: Most causes that are remembered; their texts may come from a store.
_MOST_CAUSES = 1000


class AsyncioRefused(SystemRefused):
    """What asyncio wanted of the system; ``what`` are its words."""

    template = "{what}: {reason}."


def if_somebody_listens(tell: Callable[[str], None]) -> Callable[[str], None]:
    """The function without its errors: a server outlives the reader of its messages."""

    def told(text: str) -> None:
        with suppress(OSError, ValueError):
            tell(text)

    return told


class Seldom:
    """Tells what goes on for long only when it begins: a disk may be full for a night, files are
    tried again every five seconds, and clients send again at once."""

    def __init__(self, tell: Callable[[str], None], clock: Callable[[], int]) -> None:
        """:param clock: milliseconds."""
        self._tell, self._clock = tell, clock
        #: What goes on, by name, and when each cause was last met.
        self._going_on: dict[str, str] = {}
        self._met: dict[str, int] = {}

    def going_on(self, name: str, text: str) -> None:
        """Tells a text unless it is the last one of this name, and :meth:`over` was not called."""
        if self._going_on.get(name) != text:
            self._going_on[name] = text
            self._tell(text)

    def over(self, *names: str) -> None:
        """Nothing of these names goes on any more; without names: nothing at all."""
        for name in names or list(self._going_on):
            self._going_on.pop(name, None)

    def met(self, cause: str, text: str) -> None:
        """Tells a text unless its cause was met less than a minute ago."""
        at = self._clock()
        last = self._met.pop(cause, None)
        if len(self._met) >= _MOST_CAUSES:
            del self._met[next(iter(self._met))]
        self._met[cause] = at
        if last is None or at - last >= _CALM:
            self._tell(text)

    def of_asyncio(self, loop: AbstractEventLoop, context: dict[str, Any]) -> None:
        """Takes what asyncio has to say (``loop.set_exception_handler``). Where the system refuses
        connections, as beyond the limit of open files, it would log that a thousand times a second;
        and after the stop it would listen as often where nothing listens any more."""
        error, message = context.get("exception"), context["message"]
        if isinstance(error, OSError):
            self.met(message, str(AsyncioRefused(what=message, reason=error.strerror)))
        elif "._start_serving(" not in message:
            loop.default_exception_handler(context)


def without_places(text: str, store: Store) -> str:
    """What the store says of a message, for clients: the name of a file without the place of the
    store, or of the directory that its log lies in."""
    text = text.replace(f"{store.root}/", "").replace(str(store.root), "the store")
    for directory in store.commit_log.files.directories:
        text = text.replace(f"{directory}/", f"{COMMIT_LOG}/").replace(str(directory), COMMIT_LOG)
    return text


def told_to_clients(error: Exception) -> str:
    """What clients are told of an error of the store: its name and the system's words. The text of
    an error names files, which clients must not learn."""
    reason = f": {error.reason}" if isinstance(error, SystemRefused) else ""
    return f"the store cannot answer: {type(error).__name__}{reason}"
