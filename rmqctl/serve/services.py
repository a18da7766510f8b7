"""The services of one server: work that a broker does by itself, and when it is due."""

from __future__ import annotations

from collections.abc import Iterator

from rmqctl.engine.record.message import PutMessageResult
from rmqctl.errors import RmqctlError
from rmqctl.serve.events import Upkeep, Upkept
from rmqctl.serve.processors.checks import Checks
from rmqctl.serve.processors.delivery import Delivery


class Services:
    """The delivery of delayed messages and the checks of transactions; None: without it."""

    def __init__(self, delivery: Delivery | None, checks: Checks | None) -> None:
        self._delivery = delivery
        self._checks = checks
        self._under_way: set[str] = set()
        self._failures: dict[str, str] = {}
        self._is_over = False

    def end(self) -> None:
        """From now on no work is begun."""
        self._is_over = True

    def due(self, now: int) -> Iterator[Upkeep]:
        """The work that is to be begun now. Of each kind only one is under way at a time."""
        if self._is_over:
            return
        if self._delivery is not None and self._delivery.name not in self._under_way:
            yield self._begun(Upkeep(self._delivery.name, self._delivery.deliver))
        checks = self._checks
        if checks is not None and checks.name not in self._under_way and checks.is_due(now):
            yield self._begun(Upkeep(checks.name, checks.round()))

    def _begun(self, work: Upkeep) -> Upkeep:
        self._under_way.add(work.name)
        return work

    def ended(
        self, work: Upkeep, result: Upkept | Exception
    ) -> tuple[list[PutMessageResult], list[str]]:
        """Takes the result of work; returns what was stored, and what is to be told. A failure is
        told once, and the work is tried again; a bug is raised."""
        self._under_way.discard(work.name)
        if isinstance(result, RmqctlError | OSError):
            text = f"{work.name}: {result}"
            is_new = self._failures.get(work.name) != text
            self._failures[work.name] = text
            return [], [text] if is_new else []
        if isinstance(result, Exception):
            raise result
        self._failures.pop(work.name, None)
        result.then()
        return result.stored, [f"{work.name}: {text}" for text in result.troubles]
