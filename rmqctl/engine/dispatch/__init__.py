"""From records to queue units and index keys: the rules, and the rules over batches.

Other rooms use:

- :mod:`~rmqctl.engine.dispatch.batches`
- :mod:`~rmqctl.engine.dispatch.byqueue`
- :mod:`~rmqctl.engine.dispatch.multi`
- :mod:`~rmqctl.engine.dispatch.rules`
"""
