"""Trials: a fault is done to a golden store, verify looks, and the fault is undone."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rmqctl import kernel
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.errors import RmqctlError
from rmqctl.kernel import VARIABLE
from rmqctl.operations.verify import ERROR, WARNING, Finding, verify
from tests import golden_data
from tests.faults.anatomy import Anatomy, dissect
from tests.faults.kinds import Fault, done, draw

#: Seconds after which a check of a store of some megabytes hangs.
_HANGS = 120
#: What verify may say of a fault.
FOUND, NOTED, MISSED = "found", "noted", "missed"


class Trial(NamedTuple):
    """One fault of one store. ``codes`` are the new findings, or the name of the error."""

    number: int
    store: str
    fault: Fault
    verdict: str
    codes: tuple[str, ...]
    seconds: float


@dataclass
class Subject:
    """A copy of a golden store, and what verify says of it while it is sound."""

    name: str
    root: Path
    config: MessageStoreConfig
    anatomy: Anatomy
    sound: Counter[Finding]


def subjects(golden: Callable[[str], Path], directory: Path) -> list[Subject]:
    """A copy of each golden store below ``directory``."""
    found = []
    for name in golden_data.STORES:
        root = golden_data.copy_tree(golden(name), directory / name)
        config = golden_data.broker_conf(name)
        said = _said(root, config)
        assert not isinstance(said, RmqctlError)
        found.append(Subject(name, root, config, dissect(root, config), said))
    return found


def trials(stores: list[Subject], seed: str, numbers: range) -> Iterator[Trial]:
    """The trials of these numbers, which are the same for the same seed.

    :raises AssertionError: the engines say different things, or the store is not as it was.
    :raises TimeoutError: verify hangs.
    """
    # Where no kernel was built there is one engine only.
    engines = ("pure", "compiled") if kernel.usable().module is not None else ("pure",)
    for number in numbers:
        chance = random.Random(f"{seed} {number}")
        subject = chance.choice(stores)
        fault = draw(chance, subject.anatomy)
        started = time.process_time()
        with done(fault, subject.root), _watched(f"{number}: {fault}"):
            said = [_said_by(engine, subject) for engine in engines]
        seconds = time.process_time() - started
        same = all(_same(said[0], other) for other in said)
        assert same, f"{number}: {subject.name}: {fault}: the engines differ: {said}"
        verdict = _verdict(said[0], subject)
        yield Trial(number, subject.name, fault, *verdict, seconds / len(engines))


def _said_by(engine: str, subject: Subject) -> Counter[Finding] | RmqctlError:
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = engine
    try:
        return _said(subject.root, subject.config)
    finally:
        os.environ.pop(VARIABLE)
        if before is not None:
            os.environ[VARIABLE] = before


def _said(root: Path, config: MessageStoreConfig) -> Counter[Finding] | RmqctlError:
    try:
        return Counter(one for one in verify(root, config) if isinstance(one, Finding))
    except RmqctlError as error:
        return error


def _same(one: Counter[Finding] | RmqctlError, other: Counter[Finding] | RmqctlError) -> bool:
    if isinstance(one, RmqctlError) or isinstance(other, RmqctlError):
        return str(one) == str(other)
    return one == other


def _verdict(said: Counter[Finding] | RmqctlError, subject: Subject) -> tuple[str, tuple[str, ...]]:
    if isinstance(said, RmqctlError):
        return FOUND, (type(said).__name__,)
    new = said - subject.sound
    codes = tuple(sorted({one.code for one in new}))
    if any(one.severity in (ERROR, WARNING) for one in new):
        return FOUND, codes
    return (NOTED if new else MISSED), codes


@contextmanager
def _watched(what: str) -> Iterator[None]:
    def late(*_: object) -> None:
        raise TimeoutError(f"verify hangs: {what}")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(_HANGS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
