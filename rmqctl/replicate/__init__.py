"""Copies the store of a running broker, as a slave does: it gets the log by HA, makes queues and
index itself, and fetches the files of ``config/``.

Only :mod:`~rmqctl.replicate.sockets` and :mod:`~rmqctl.replicate.asker` have sockets and a clock.
"""
