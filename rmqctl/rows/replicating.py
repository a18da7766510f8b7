"""The rows of ``replicate``: where it began, how far it is, and which files it wrote."""

from typing import Annotated, Literal, TypedDict

from rmqctl.rows.field import BYTES, MESSAGES, Kind


class JoinedRow(TypedDict):
    """The connection to the master; once more after each lost connection."""

    type: Literal["joined"]
    master: Annotated[str, "where its log comes from"]
    broker_name: Annotated[str, "its name"]
    broker_role: Annotated[str, "`ASYNC_MASTER` or `SYNC_MASTER`"]
    store: Annotated[str, "the copy"]
    from_offset: Annotated[int, BYTES, "physical offset from which the log is copied"]
    master_min_offset: Annotated[int, BYTES, "where the master's log begins"]
    master_max_offset: Annotated[int, BYTES, "where it ends"]
    commit_log_file_size: Annotated[int, BYTES, "size of a file of the log"]


class ReplicatedRow(TypedDict):
    """How far the copy is; every five seconds, and at the end."""

    type: Literal["replicated"]
    max_offset: Annotated[int, BYTES, "physical offset up to which the copy has the log on disk"]
    master_max_offset: Annotated[
        int, BYTES, "where the master's log ended when it was last asked, at most ten seconds ago"
    ]
    behind_bytes: Annotated[int, BYTES, "bytes up to there that the copy does not have"]
    records: Annotated[int, MESSAGES, "records copied by this run"]
    bytes: Annotated[int, BYTES, "bytes of log copied by this run"]


class ConfigWrittenRow(TypedDict):
    """A file of `config/` that was written as the master has it."""

    type: Literal["config_written"]
    name: Annotated[str, "its name"]
    size: Annotated[int, BYTES, "its size"]


class ReplicateSummary(TypedDict):
    type: Literal["summary"]
    max_offset: Annotated[int, BYTES, "physical offset up to which the copy has the log on disk"]
    master_max_offset: Annotated[int, BYTES, "as in [replicated](#replicated)"]
    behind_bytes: Annotated[int, BYTES, "as there"]
    records: Annotated[int, MESSAGES, "records copied"]
    bytes: Annotated[int, BYTES, "bytes of log copied"]
    connections: Annotated[int, "connections to the master"]
    caught_up: Annotated[bool, "whether the copy had all that the master had when it was asked"]
    body_crc_mismatches: Annotated[
        int, MESSAGES, "copied records whose body does not match its CRC, as on the master"
    ]
    errors: Annotated[int | None, "findings of `--verify`; null without"]
    warnings: Annotated[int | None, "likewise"]


KINDS = (
    Kind("joined", JoinedRow, printed_by=("replicate",)),
    Kind("replicated", ReplicatedRow, printed_by=("replicate",)),
    Kind("config_written", ConfigWrittenRow, printed_by=("replicate",)),
    Kind("summary (replicate)", ReplicateSummary),
)
