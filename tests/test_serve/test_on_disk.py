"""What consumers are shown is on disk."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from formats.remotingcodes import RequestCode, ResponseCode
from rmqctl.engine.log import logwriter
from rmqctl.engine.messagestore import WritableStore
from rmqctl.serve.processors.request import Served
from tests.test_replicate.live import CONFIG
from tests.test_serve.dialogue import Dialogue
from tests.test_serve.test_ha import SEND


def test_what_the_disk_did_not_take_is_shown_to_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash would take it away, and another message come to its place: a consumer that had it
    would pass over that one."""

    def fail(paths: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    store = WritableStore(tmp_path / "store", CONFIG, create=True)
    try:
        dialogue = Dialogue(Served.of(store))
        client = dialogue.client()
        assert client.ask(RequestCode.SEND_MESSAGE_V2, b"safe", **SEND).code == 0
        monkeypatch.setattr(logwriter, "sync_files", fail)
        lost = client.ask(RequestCode.SEND_MESSAGE_V2, b"lost", **SEND)
        assert lost.code == ResponseCode.SYSTEM_ERROR
        # The store has both, and the consumer gets one.
        assert len(store.get_message("orders", 0, 0).records) == 2
        pulled = client.pull("orders", 0, 0)
        assert pulled is not None and b"safe" in pulled.body and b"lost" not in pulled.body
        assert pulled.ext_fields["nextBeginOffset"] == "1"
        again = client.pull("orders", 0, 1)
        assert again is not None and again.code == ResponseCode.PULL_NOT_FOUND
    finally:
        store.abandon()
