"""repair: plans what can be mended of a store, and carries a plan out, as a whole or not at all.

Other rooms use:

- :mod:`~rmqctl.operations.repair.apply`
- :mod:`~rmqctl.operations.repair.errors`
- :mod:`~rmqctl.operations.repair.model`
- :mod:`~rmqctl.operations.repair.plan`
- :mod:`~rmqctl.operations.repair.planfile`
- :mod:`~rmqctl.operations.repair.rows`
"""
