"""Commands that change what a store holds: put, flush, deliver, settle, remove.

Other rooms use:

- :mod:`~rmqctl.operations.change.clean`
- :mod:`~rmqctl.operations.change.demo`
- :mod:`~rmqctl.operations.change.flush`
- :mod:`~rmqctl.operations.change.groupoffsets`
- :mod:`~rmqctl.operations.change.messagefields`
- :mod:`~rmqctl.operations.change.messagemaker`
- :mod:`~rmqctl.operations.change.put`
- :mod:`~rmqctl.operations.change.putbatches`
- :mod:`~rmqctl.operations.change.putstream`
- :mod:`~rmqctl.operations.change.schedule`
- :mod:`~rmqctl.operations.change.timed`
- :mod:`~rmqctl.operations.change.timerdelivery`
- :mod:`~rmqctl.operations.change.transaction`
"""
