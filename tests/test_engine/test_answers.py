"""Answers of file systems behind a network: those that come, and those that do not."""

from __future__ import annotations

import threading

import pytest

from rmqctl.engine.files.answers import NoAnswer, answered, is_one_missing


def test_an_answer_is_what_was_returned_or_raised() -> None:
    def refused() -> None:
        raise TimeoutError("by the library")

    assert answered(lambda: threading.current_thread().daemon, None)
    with pytest.raises(TimeoutError, match="by the library"):
        answered(refused, None)


def test_an_answer_that_does_not_come_is_given_up() -> None:
    asked, answer = threading.Event(), threading.Event()

    def ask() -> None:
        asked.set()
        answer.wait()

    with pytest.raises(NoAnswer, match="no answer within 0 seconds"):
        answered(ask, 0)
    assert asked.wait(60)
    assert is_one_missing()
    answer.set()
    for thread in threading.enumerate():
        if thread.name == "answer":
            thread.join()
    assert not is_one_missing()
