"""Copies the store of a running broker, as a slave does: it gets the log by HA, makes queues and
index itself, and fetches the files of ``config/``.

Only :mod:`~rmqctl.replicate.sockets` has sockets and a clock.
"""
