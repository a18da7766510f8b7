"""What `tiered verify` can find in what a broker of 5.x has uploaded to files, and what `verify`
says of it; by the same rules as :mod:`rmqctl.operations.verify.codes`."""

from __future__ import annotations

from rmqctl.operations.verify.codes import ERROR, INFO, WARNING, Code

_LOST = (
    "A broker does not give these messages back from here. Its own log has them until it removes "
    "its files: raise fileReservedTime before they go, and bring the file back from a copy of the "
    "directory."
)
_INDEX_LOST = (
    "Queries by key miss messages; consumers do not. No broker makes an index anew of what is "
    "uploaded: bring the file back from a copy, or do without."
)

TIERED_CODES: dict[str, Code] = {
    "tiered-storage": Code(
        INFO,
        "tiered",
        "the broker has tiered storage, and uploads messages",
        "`verify` looks at nothing that was uploaded: `rmqctl tiered verify` does, and wants "
        "the broker.conf or --files where the files do not lie in the store.",
    ),
    "tiered-metadata-unreadable": Code(
        ERROR,
        "tiered",
        "`config/tieredStoreMetadata.json` is broken, and its .bak does not help",
        "A broker that starts so knows none of its uploaded files, begins anew with the messages "
        "of the last two minutes, and appends them to what is there. Keep it down and bring the "
        "file back; the uploaded files still have everything: `rmqctl tiered walk`.",
    ),
    "tiered-metadata-missing": Code(
        ERROR,
        "tiered",
        "there are uploaded files, and no `config/tieredStoreMetadata.json`",
        "A broker that starts so knows none of them, begins anew with the messages of the last two "
        "minutes, and appends them to what is there. Keep it down and bring the file back; the "
        "uploaded files still have everything: `rmqctl tiered walk`.",
    ),
    "tiered-segment-missing": Code(
        ERROR, "tiered", "the metadata names a segment of which there is no file", _LOST
    ),
    "tiered-segment-short": Code(
        ERROR, "tiered", "the file of a segment has less bytes than the metadata says", _LOST
    ),
    "tiered-segment-long": Code(
        WARNING,
        "tiered",
        "the file of a segment has more bytes than the metadata says",
        "A broker does not read them, unless it is the last one of its log or queue, where a kill "
        "leaves just this, and the next start takes them in.",
    ),
    "tiered-segment-unknown": Code(
        WARNING,
        "tiered",
        "the metadata does not name a file that is there",
        "A broker neither reads nor deletes it. `rmqctl tiered walk` shows what is in it.",
    ),
    "tiered-segment-gap": Code(
        ERROR, "tiered", "a segment does not begin where the one before it ends", _LOST
    ),
    "tiered-segment-stray": Code(
        WARNING,
        "tiered",
        "a segment is of a kind that its topic does not have",
        "Nobody reads it. Look at it and move it away.",
    ),
    "tiered-foreign-file": Code(
        WARNING,
        "tiered",
        "a name among the segments that is none of one",
        "Look at it and move it away.",
    ),
    "tiered-queue-cut": Code(
        ERROR,
        "tiered",
        "a segment of a queue does not hold whole units",
        "A broker takes the file's length for its end, and every unit that it appends is read "
        "shifted. Cut the file to whole units of 20 bytes while the broker is down.",
    ),
    "tiered-unit-past-end": Code(
        ERROR, "tiered", "units point behind the end of the queue's uploaded log", _LOST
    ),
    "tiered-unit-mismatch": Code(
        ERROR, "tiered", "the record is not the one that a unit says, or there is none", _LOST
    ),
    "tiered-body-crc-mismatch": Code(
        ERROR,
        "tiered",
        "the body of an uploaded record is not what was stored",
        "A broker gives it out as it is; clients refuse it. Its own log has the message until it "
        "removes its files.",
    ),
    "tiered-log-unreferenced": Code(
        INFO,
        "tiered",
        "bytes of an uploaded log to which no unit leads",
        "A kill between log and queue leaves them, and the broker uploads these messages again: "
        "nothing is lost.",
    ),
    "tiered-index-unreadable": Code(
        ERROR, "tiered", "a file of the index contradicts itself", _INDEX_LOST
    ),
    "tiered-index-slots-unknown": Code(
        WARNING,
        "tiered",
        "nothing says how many slots a file of the index has that is not uploaded",
        "Nothing of it was checked. Give the broker.conf that has "
        "tieredStoreIndexFileMaxHashSlotNum, with --broker-conf.",
    ),
    "tiered-index-broken": Code(
        ERROR,
        "tiered",
        "a slot of the index does not lead to its items, or an item is in no slot",
        _INDEX_LOST,
    ),
    "tiered-index-item-mismatch": Code(
        ERROR,
        "tiered",
        "items of the index lead to no record, or to one without such a key",
        _INDEX_LOST,
    ),
}
