"""What is done by a thread of its own: in order, one after the other, and its errors come out."""

from __future__ import annotations

import threading

import pytest

from rmqctl.engine.files.behind import Behind


@pytest.mark.parametrize("is_threaded", [False, True])
def test_all_is_done_in_order(is_threaded: bool) -> None:
    done: list[tuple[int, bool]] = []
    behind = Behind("test", is_threaded=is_threaded)
    for number in range(20):

        def work(number: int = number) -> None:
            done.append((number, threading.current_thread() is threading.main_thread()))

        behind.do(work)
        # What came before is over.
        assert len(done) >= number
    behind.wait()
    assert done == [(number, not is_threaded) for number in range(20)]
    behind.wait()
    behind.close()


def test_who_asks_goes_on_meanwhile() -> None:
    behind, goes_on = Behind("test", is_threaded=True), threading.Event()
    behind.do(lambda: assert_true(goes_on.wait(60)))
    goes_on.set()
    behind.wait()
    behind.close()


def assert_true(value: bool) -> None:
    assert value


@pytest.mark.parametrize("by_asking", [False, True])
def test_an_error_is_told_to_who_asks_next(by_asking: bool) -> None:
    def fail() -> None:
        raise OSError("the disk is full")

    behind, done = Behind("test", is_threaded=True), []
    behind.do(fail)
    with pytest.raises(OSError, match="the disk is full"):
        behind.do(lambda: done.append(1)) if by_asking else behind.wait()
    behind.wait()
    behind.close()
    assert not done
