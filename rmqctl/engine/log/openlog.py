"""Opens a store's log for writing, as its configuration says."""

from __future__ import annotations

from pathlib import Path

from rmqctl.engine.files import paths
from rmqctl.engine.log.logwriter import CommitLogWriter
from rmqctl.engine.log.spread import log_files_writer
from rmqctl.engine.settings.storeconfig import MessageStoreConfig


def open_log_writer(root: Path, config: MessageStoreConfig, file_size: int) -> CommitLogWriter:
    """A store's log for writing, with a transient store pool and warm files as configured. Errors
    as in :func:`~rmqctl.engine.settings.logdirectories.log_directories`."""
    pool = None
    if config.is_transient_store_pool_enable:
        from rmqctl.engine.files.bufferpool import TransientStorePool

        pool = TransientStorePool(config.transient_store_pool_size, file_size)
    warm_pages = None
    if config.warm_maped_file_enable:
        is_sync = config.flush_disk_type == "SYNC_FLUSH"
        warm_pages = config.flush_least_pages_when_warm_maped_file if is_sync else 0
    return CommitLogWriter(
        root / paths.COMMIT_LOG,
        file_size,
        root,
        files=log_files_writer(root, config, file_size),
        pool=pool,
        warm_pages=warm_pages,
    )
