"""repair: what can be mended of a store, as a plan that is read first and then done whole.

Other rooms use:

- :mod:`~rmqctl.operations.repair.apply`
- :mod:`~rmqctl.operations.repair.errors`
- :mod:`~rmqctl.operations.repair.model`
- :mod:`~rmqctl.operations.repair.plan`
- :mod:`~rmqctl.operations.repair.planfile`
- :mod:`~rmqctl.operations.repair.rows`
"""
