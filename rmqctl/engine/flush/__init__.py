"""Threads that bring appended records and units to disk.

Other rooms use:

- :mod:`~rmqctl.engine.flush.services`
- :mod:`~rmqctl.engine.flush.thread`
"""
