"""The finding codes of ``tiered verify``, and that of ``verify`` for tiered storage, by the rules
of :mod:`rmqctl.operations.verify.codes`."""

from __future__ import annotations

from rmqctl.operations.verify.codes import ERROR, INFO, WARNING, Code

_LOST = (
    "A broker does not serve these messages from the uploaded files. Its own log has them until it "
    "removes its files: raise fileReservedTime before it does, and bring the file back from a copy "
    "of the directory."
)
_INDEX_LOST = (
    "Queries by key miss messages; consumers do not. No broker makes the index of uploaded "
    "messages anew: bring the file back from a copy, or do without."
)

TIERED_CODES: dict[str, Code] = {
    "tiered-storage": Code(
        INFO,
        "tiered",
        "the broker has tiered storage and uploads messages",
        "`verify` checks nothing that was uploaded; `rmqctl tiered verify` does. It needs the "
        "broker.conf or --files if the files are not in the store.",
    ),
    "tiered-metadata-unreadable": Code(
        ERROR,
        "tiered",
        "`config/tieredStoreMetadata.json` is broken, and there is no sound .bak copy",
        "A broker that starts like this knows none of its uploaded files. It begins anew with the "
        "messages of the last two minutes, and appends them to the files. Keep it down and bring "
        "the metadata back. The uploaded files still have everything: `rmqctl tiered walk`.",
    ),
    "tiered-metadata-missing": Code(
        ERROR,
        "tiered",
        "there are uploaded files, but no `config/tieredStoreMetadata.json`",
        "A broker that starts like this knows none of them. It begins anew with the messages of "
        "the last two minutes, and appends them to the files. Keep it down and bring the metadata "
        "back. The uploaded files still have everything: `rmqctl tiered walk`.",
    ),
    "tiered-segment-missing": Code(
        ERROR, "tiered", "the metadata names a segment that has no file", _LOST
    ),
    "tiered-segment-short": Code(
        ERROR, "tiered", "the file of a segment has fewer bytes than the metadata says", _LOST
    ),
    "tiered-segment-long": Code(
        WARNING,
        "tiered",
        "the file of a segment has more bytes than the metadata says",
        "A broker does not read these bytes, unless the segment is the last one of its log or "
        "queue: a kill leaves it like this, and the next start takes the bytes in.",
    ),
    "tiered-segment-unknown": Code(
        WARNING,
        "tiered",
        "there is a file that the metadata does not name",
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
        "a file among the segments has a name that no segment has",
        "Look at it and move it away.",
    ),
    "tiered-queue-cut": Code(
        ERROR,
        "tiered",
        "a segment of a queue does not hold whole units",
        "A broker appends at the end of the file, so every unit that it appends is read shifted. "
        "Cut the file to whole units of 20 bytes while the broker is down.",
    ),
    "tiered-unit-past-end": Code(
        ERROR, "tiered", "units point past the end of the queue's uploaded log", _LOST
    ),
    "tiered-unit-mismatch": Code(
        ERROR, "tiered", "there is another record than a unit says, or none", _LOST
    ),
    "tiered-body-crc-mismatch": Code(
        ERROR,
        "tiered",
        "the body of an uploaded record does not match its CRC: it is not what was stored",
        "A broker serves it as it is; clients refuse it. Its own log has the message until it "
        "removes its files.",
    ),
    "tiered-log-unreferenced": Code(
        INFO,
        "tiered",
        "no unit leads to some bytes of an uploaded log",
        "A kill between the uploads of log and queue leaves them, and the broker uploads these "
        "messages again: nothing is lost.",
    ),
    "tiered-index-unreadable": Code(
        ERROR, "tiered", "a file of the index contradicts itself", _INDEX_LOST
    ),
    "tiered-index-slots-unknown": Code(
        WARNING,
        "tiered",
        "nothing says how many slots a file of the index has, which is not uploaded yet",
        "The file was not checked. Give the broker.conf that sets "
        "tieredStoreIndexFileMaxHashSlotNum, with --broker-conf.",
    ),
    "tiered-index-broken": Code(
        ERROR,
        "tiered",
        "a slot of the index does not lead to its items, or no slot leads to an item",
        _INDEX_LOST,
    ),
    "tiered-index-item-mismatch": Code(
        ERROR,
        "tiered",
        "items of the index lead to no record, or to one without such a key or of another time",
        _INDEX_LOST,
    ),
}
