"""Consume queues of every kind: reading and appending units, extension files, recovery.

Other rooms use:

- :mod:`~rmqctl.engine.queue.batchqueue`
- :mod:`~rmqctl.engine.queue.compactedqueue`
- :mod:`~rmqctl.engine.queue.consumequeue`
- :mod:`~rmqctl.engine.queue.ends`
- :mod:`~rmqctl.engine.queue.errors`
- :mod:`~rmqctl.engine.queue.extension`
- :mod:`~rmqctl.engine.queue.outofplace`
- :mod:`~rmqctl.engine.queue.queuetable`
- :mod:`~rmqctl.engine.queue.queuetablewriter`
- :mod:`~rmqctl.engine.queue.queuewriter`
- :mod:`~rmqctl.engine.queue.recovery`
- :mod:`~rmqctl.engine.queue.rocksdbqueue`
- :mod:`~rmqctl.engine.queue.storing`
"""
