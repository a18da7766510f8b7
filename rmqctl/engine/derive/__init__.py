"""Writing what is derived of the log, queues and index, and catching up with it.

Other rooms use:

- :mod:`~rmqctl.engine.derive.catchup`
- :mod:`~rmqctl.engine.derive.writer`
"""
