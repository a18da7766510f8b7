"""Errors of tiered storage."""

from __future__ import annotations

from rmqctl.errors import RmqctlError


class NoTieredStorage(RmqctlError):
    template = (
        "{path}: no broker with tiered storage has run on this store. Give the store whose config/ "
        "has tieredStoreMetadata.json, or the directory of the uploaded files themselves."
    )
    exit_code = 3


class TieredFilesNotFound(RmqctlError):
    template = "{path}: the files of tiered storage are not found: {reason}."
    step = "Give the broker's tieredStoreFilePath."
    command_step = (
        "Give the broker's tieredStoreFilePath with --files, or its broker.conf with --broker-conf."
    )
    exit_code = 3
