"""Parses and checks what is typed into a prompt, in the same forms as options of commands."""

from __future__ import annotations

import click

from rmqctl.cli.types import OFFSET, Time
from rmqctl.errors import UsageError
from rmqctl.operations.look.message import parse_physical_offset


def time_of(text: str) -> int:
    """The epoch milliseconds of a text that :func:`time_problem` accepts."""
    return Time().convert(text, None, None)


def time_problem(text: str) -> str:
    """Why a text is not a time; empty if it is."""
    try:
        time_of(text)
    except click.UsageError as error:
        return error.message
    return ""


def place_of(text: str) -> int:
    """The physical offset of a text that :func:`place_problem` accepts."""
    return parse_physical_offset(text.strip())


def place_problem(text: str) -> str:
    """Why a text is neither a physical offset nor a message id; empty if it is one."""
    try:
        place_of(text)
    except UsageError as error:
        return str(error)
    return ""


def queue_offset_of(text: str) -> int:
    """The queue offset of a text that :func:`queue_offset_problem` accepts."""
    return OFFSET.convert(text, None, None)


def queue_offset_problem(text: str) -> str:
    """Why a text is not a queue offset; empty if it is."""
    try:
        queue_offset_of(text)
    except click.UsageError as error:
        return error.message
    return ""


def text_problem(text: str) -> str:
    """Why a text cannot be searched for; empty if it can."""
    return "" if text else "type a key, a message id or, for s, any text; Escape leaves"
