"""Makes queue units and index keys of records: rules for one record, and for batches.

Other rooms use:

- :mod:`~rmqctl.engine.dispatch.batches`
- :mod:`~rmqctl.engine.dispatch.byqueue`
- :mod:`~rmqctl.engine.dispatch.multi`
- :mod:`~rmqctl.engine.dispatch.rules`
"""
