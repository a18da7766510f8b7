"""Threads that bring to disk what was appended.

Other rooms use:

- :mod:`~rmqctl.engine.flush.services`
- :mod:`~rmqctl.engine.flush.thread`
"""
