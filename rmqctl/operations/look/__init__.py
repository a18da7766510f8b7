"""Commands that only read: they give rows of what a store has.

Other rooms use:

- :mod:`~rmqctl.operations.look.diff`
- :mod:`~rmqctl.operations.look.disk`
- :mod:`~rmqctl.operations.look.du`
- :mod:`~rmqctl.operations.look.dump`
- :mod:`~rmqctl.operations.look.export`
- :mod:`~rmqctl.operations.look.find`
- :mod:`~rmqctl.operations.look.follow`
- :mod:`~rmqctl.operations.look.groups`
- :mod:`~rmqctl.operations.look.halves`
- :mod:`~rmqctl.operations.look.index`
- :mod:`~rmqctl.operations.look.info`
- :mod:`~rmqctl.operations.look.keyed`
- :mod:`~rmqctl.operations.look.message`
- :mod:`~rmqctl.operations.look.names`
- :mod:`~rmqctl.operations.look.offset`
- :mod:`~rmqctl.operations.look.places`
- :mod:`~rmqctl.operations.look.ranges`
- :mod:`~rmqctl.operations.look.pop`
- :mod:`~rmqctl.operations.look.pull`
- :mod:`~rmqctl.operations.look.queues`
- :mod:`~rmqctl.operations.look.recordstarts`
- :mod:`~rmqctl.operations.look.rows`
- :mod:`~rmqctl.operations.look.stats`
- :mod:`~rmqctl.operations.look.tiered`
- :mod:`~rmqctl.operations.look.timer`
- :mod:`~rmqctl.operations.look.topics`
- :mod:`~rmqctl.operations.look.uncommitted`
- :mod:`~rmqctl.operations.look.waiting`
- :mod:`~rmqctl.operations.look.walk`
- :mod:`~rmqctl.operations.look.walkqueues`
"""
