"""A system that refuses advice about maps is none that cannot hold a store."""

from __future__ import annotations

import mmap
import tempfile

import pytest

from rmqctl.engine.files import advice


def test_a_system_that_takes_no_advice_is_asked_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(mmap.mmap):
        def madvise(self, *_: int, **__: int) -> None:
            raise OSError(22, "Invalid argument")

    memory = Refusing(-1, 1 << 16)
    advice.expect_zeros(memory)
    advice.expect_readers(memory)
    monkeypatch.setattr("os.major", lambda number: 0)
    with tempfile.TemporaryFile() as file:
        advice.want_all(memory, file.fileno(), 0, 1 << 16)
    assert memory[:8] == bytes(8)
