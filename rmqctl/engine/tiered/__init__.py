"""Tiered storage of 5.x in files (``PosixFileSegment``): its places, logs, queues and index.

Other rooms use:

- :mod:`~rmqctl.engine.tiered.files`
- :mod:`~rmqctl.engine.tiered.index`
- :mod:`~rmqctl.engine.tiered.metadata`
- :mod:`~rmqctl.engine.tiered.openqueues`
- :mod:`~rmqctl.engine.tiered.store`
"""
