"""Counts with a noun, in the singular or the plural."""

from __future__ import annotations


def some(count: int, noun: str) -> str:
    """``1 error``, ``16 queues``, ``2 index files``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def some_are(count: int, noun: str) -> str:
    """``1 message is``, ``2 messages are``."""
    return f"{some(count, noun)} {'is' if count == 1 else 'are'}"
