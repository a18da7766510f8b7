"""Commands that build queues and index anew, or bring a store in order.

Other rooms use:

- :mod:`~rmqctl.operations.mend.endedqueues`
- :mod:`~rmqctl.operations.mend.filetimes`
- :mod:`~rmqctl.operations.mend.missing`
- :mod:`~rmqctl.operations.mend.plainstore`
- :mod:`~rmqctl.operations.mend.rebuild`
- :mod:`~rmqctl.operations.mend.rebuildplan`
- :mod:`~rmqctl.operations.mend.recovery`
- :mod:`~rmqctl.operations.mend.salvage`
- :mod:`~rmqctl.operations.mend.salvagerows`
- :mod:`~rmqctl.operations.mend.swap`
- :mod:`~rmqctl.operations.mend.timer`
- :mod:`~rmqctl.operations.mend.tofiles`
"""
