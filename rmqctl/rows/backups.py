"""The rows of ``backup`` and ``restore``."""

from typing import Annotated, Literal, TypedDict

from rmqctl.rows.field import BYTES, FILES, MILLISECONDS, Kind


class PartRow(TypedDict):
    """What a backup has of a directory of the store."""

    type: Literal["part"]
    part: Annotated[str, "the directory; `other` for files that are in none"]
    files: Annotated[int, FILES, "files"]
    data_bytes: Annotated[int, BYTES, "their length up to the last byte that is not zero"]
    stored_bytes: Annotated[
        int,
        BYTES,
        "how much of that this backup holds, without holes and before compression",
    ]


class BackupRow(TypedDict):
    """A backup, as its manifest tells."""

    type: Literal["backup"]
    backup: Annotated[str, "directory, file or URL"]
    made_timestamp: Annotated[int, MILLISECONDS, "when it was begun"]
    files: Annotated[int, FILES, "files of the store"]
    data_bytes: Annotated[int, BYTES, "their length up to the last byte that is not zero"]
    stored_bytes: Annotated[
        int, BYTES, "how much of that the backup holds, without holes and before compression"
    ]
    physical_offset: Annotated[
        int | None, BYTES, "where the log ends in it; null: its files could not be read as one log"
    ]
    dispatched_offset: Annotated[
        int | None,
        BYTES,
        "physical offset up to which its queues and index have the records of the log: less than "
        "the log's end if a broker's dispatch stood still, or the last records have no unit",
    ]
    is_live: Annotated[
        bool, "a broker wrote meanwhile; what it wrote after these offsets is not in the backup"
    ]
    id: Annotated[str, "SHA-256 of the manifest"]
    base: Annotated[str | None, "id of the backup on which it builds; null: it is a full one"]


class BackupProblemRow(TypedDict):
    """Something in a backup that is not as it was written."""

    type: Literal["backup_problem"]
    backup: Annotated[str, "directory, file or URL"]
    path: Annotated[str | None, "the file of the store; null: the backup as a whole"]
    what: Annotated[str, "what is wrong, in words"]


class BackupCreateSummary(TypedDict):
    type: Literal["summary"]
    output: Annotated[str, "directory, file or URL"]
    dry_run: Annotated[bool, "nothing was written"]
    id: Annotated[str, "SHA-256 of the manifest"]
    base: Annotated[str | None, "id of the backup on which it builds; null: it is a full one"]
    is_live: Annotated[
        bool, "a broker wrote meanwhile; what it wrote after these offsets is not in the backup"
    ]
    min_physical_offset: Annotated[int | None, BYTES, "where the log begins"]
    physical_offset: Annotated[int | None, BYTES, "where the log ends in the backup"]
    dispatched_offset: Annotated[
        int | None, BYTES, "physical offset up to which its queues and index have the records"
    ]
    files: Annotated[int, FILES, "files of the store"]
    data_bytes: Annotated[int, BYTES, "their length up to the last byte that is not zero"]
    stored_bytes: Annotated[
        int, BYTES, "how much of that the backup holds, without holes and before compression"
    ]
    left_out: Annotated[
        int,
        "what was left out, as no plain file: sockets, pipes, links that lead nowhere",
    ]


class BackupListSummary(TypedDict):
    type: Literal["summary"]
    backups: Annotated[int, "backups that were named"]
    incomplete: Annotated[str | None, "why they make no store, in words; null: they do"]


class BackupVerifySummary(TypedDict):
    type: Literal["summary"]
    backups: Annotated[int, "backups that could be opened"]
    files: Annotated[int, FILES, "files that were read, parts of files counted by themselves"]
    stored_bytes: Annotated[int, BYTES, "their length without holes"]
    problems: Annotated[int, "what is wrong with them"]
    incomplete: Annotated[str | None, "why they make no store, in words; null: they do"]


class RestoreSummary(TypedDict):
    type: Literal["summary"]
    output: Annotated[str, "the new store"]
    dry_run: Annotated[bool, "nothing was written"]
    id: Annotated[str, "id of the backup whose store it is"]
    backups: Annotated[int, "backups that it was put together from"]
    files: Annotated[int, FILES, "its files"]
    data_bytes: Annotated[int, BYTES, "their length up to the last byte that is not zero"]
    physical_offset: Annotated[int | None, BYTES, "where its log ends"]


KINDS = (
    Kind("part", PartRow, printed_by=("backup create",)),
    Kind("backup", BackupRow, printed_by=("backup ls", "restore")),
    Kind("backup_problem", BackupProblemRow, printed_by=("backup verify",)),
    Kind("summary (backup create)", BackupCreateSummary),
    Kind("summary (backup ls)", BackupListSummary),
    Kind("summary (backup verify)", BackupVerifySummary),
    Kind("summary (restore)", RestoreSummary),
)
