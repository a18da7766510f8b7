"""Errors that end a backup, its verification or a restore."""

from __future__ import annotations

from rmqctl.errors import RmqctlError, UsageError


class BackupNotFound(RmqctlError):
    template = "there is no backup {path}: {reason}."
    step = "Name a directory, a file or a URL that `rmqctl backup` has written."
    exit_code = 3


class BackupUnsound(RmqctlError):
    """A backup that has changed since it was written."""

    template = (
        "the backup {path} is damaged: {reason}. `rmqctl backup verify` names everything that is "
        "wrong with it. Take another backup, or an older one of its chain."
    )


class BackupUnreachable(RmqctlError):
    """A file system behind a URL refused. This says nothing about the bytes."""

    template = (
        "cannot reach {path}: {reason}. Check the address, the network, and the credentials in the "
        "environment."
    )


class BackupLibraryMissing(RmqctlError):
    """A package that only backups need is not installed."""

    template = "{what} needs the package {package}, and {reason}. Install it with `{command}`."


class ChainBroken(UsageError):
    """The named backups do not make one store."""

    template = "{reason}."
    step = (
        "Name a full backup and all backups that build on it, up to the wanted one, in any order."
    )


class TooManyFiles(RmqctlError):
    template = (
        "the store has {files} files, more than a backup can list. Nothing was written. Copy it "
        "with the tools of the system."
    )


class StoreChanging(RmqctlError):
    """A store that changes while it is copied."""

    template = (
        "{path} was changed while it was copied: {reason}. Nothing was written. Try again when no "
        "start, repair or deletion is going on in the store."
    )
