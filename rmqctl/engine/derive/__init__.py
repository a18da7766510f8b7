"""Writes what is derived from the log, queues and index, and catches up with the log.

Other rooms use:

- :mod:`~rmqctl.engine.derive.catchup`
- :mod:`~rmqctl.engine.derive.writer`
"""
