"""What is typed into a prompt, and what is wrong with it; as options take it."""

from __future__ import annotations

import click

from rmqctl.cli.types import OFFSET, Time
from rmqctl.errors import UsageError
from rmqctl.operations.look.message import parse_physical_offset


def time_of(text: str) -> int:
    """Milliseconds of a time that :func:`time_problem` takes."""
    return Time().convert(text, None, None)


def time_problem(text: str) -> str:
    """Why a text is no time; empty when it is one."""
    try:
        time_of(text)
    except click.UsageError as error:
        return error.message
    return ""


def place_of(text: str) -> int:
    """The physical offset of a text that :func:`place_problem` takes."""
    return parse_physical_offset(text.strip())


def place_problem(text: str) -> str:
    """Why a text is no physical offset and no message id; empty when it is one."""
    try:
        place_of(text)
    except UsageError as error:
        return str(error)
    return ""


def queue_offset_of(text: str) -> int:
    """A queue offset that :func:`queue_offset_problem` takes."""
    return OFFSET.convert(text, None, None)


def queue_offset_problem(text: str) -> str:
    """Why a text is no queue offset; empty when it is one."""
    try:
        queue_offset_of(text)
    except click.UsageError as error:
        return error.message
    return ""


def text_problem(text: str) -> str:
    """Why there is nothing to look for; empty when there is."""
    return "" if text else "type a key, a message id or, for s, any text; Escape leaves"
