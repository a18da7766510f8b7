"""Makes, verifies and restores backups of a store, on this machine or behind a URL.

Other rooms use:

- :mod:`~rmqctl.operations.backup.check`
- :mod:`~rmqctl.operations.backup.create`
- :mod:`~rmqctl.operations.backup.manifest`
- :mod:`~rmqctl.operations.backup.restore`
"""
