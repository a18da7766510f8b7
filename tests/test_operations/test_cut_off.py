"""What a cut-off run has put already is found again, in whatever form the store's records are."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.form import RecordForm
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.operations.change.schedule import Delivery, DeliveryRun
from rmqctl.operations.change.transaction import Ending, end_transactions
from rmqctl.rows import Row
from tests.test_engine.test_messagestore import SMALL, is_clean

Message = MessageExtBrokerInner
HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
FORMS = [RecordForm(), RecordForm(property_separator=True), RecordForm(True, True)]


def opened(root: Path, form: RecordForm) -> MessageStore:
    store = MessageStore(root, SMALL, writable=True, create=True)
    if not store.max_offset:
        store.writer.write_in(form)
    assert store.form == form
    return store


@pytest.mark.parametrize("form", FORMS)
def test_delivered_messages_are_known_again(tmp_path: Path, form: RecordForm) -> None:
    root = tmp_path / "s"
    waiting = Message("T", b"x", properties={"DELAY": "1", "TAGS": "a", "KEYS": "k"})
    with opened(root, form) as store:
        assert all(result.is_ok for result in store.put_messages([waiting] * 3))
    for before in (0, 3):
        with opened(root, form) as store:
            rows: list[Row] = list(DeliveryRun(store, Delivery(1 << 62, 0)).rows())
            summary = rows[-1]
            assert (summary["delivered"], summary["delivered_before"]) == (3, before)
            # The properties of a delivery are those of the message that waited.
            copies = store.get_message("T", 0, before, 3).records
            for copy in copies:
                assert copy.properties["DELAY"] == "1" and "WAIT" not in copy.properties
                assert copy.properties_bytes.count(b"__CRC32#") == form.property_crc
        (root / "config/delayOffset.json").unlink()
    assert is_clean(root)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("delay", [{}, {"DELAY": "2"}])
def test_a_commit_that_was_cut_off_is_only_completed(
    tmp_path: Path, form: RecordForm, delay: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "s"
    properties = {"TRAN_MSG": "true", "PGROUP": "g", "REAL_TOPIC": "R", "REAL_QID": "2"}
    with opened(root, form) as store:
        # As one that is stored with a level, which producers clear.
        encoded = Message(HALF, b"body", properties=properties)
        data = "\x02".join(f"{n}\x01{v}" for n, v in (properties | delay).items()).encode()
        encoded.properties_bytes = data
        half = store.put_message(encoded).append
        assert half is not None

    class Killed(Exception):
        pass

    def killed(*_: object) -> Message:
        raise Killed

    with opened(root, form) as store, monkeypatch.context() as patched:
        patched.setattr("rmqctl.engine.services.transaction.op_message", killed)
        with pytest.raises(Killed):
            list(end_transactions(store, [half.wrote_offset], Ending("commit", 0)))
        final = store.max_offset
    with opened(root, form) as store:
        rows: list[Row] = list(end_transactions(store, [half.wrote_offset], Ending("commit", 0)))
        row, _ = rows
        assert row["status"] == "PUT_OK" and row["final_offset"] < final
        assert row["op_offset"] == final, "the op message alone"
    assert is_clean(root)
