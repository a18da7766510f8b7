"""Many stores, one row each: which they are, what is looked at, what has not changed since.

Other rooms use:

- :mod:`~rmqctl.operations.fleet.counting`
- :mod:`~rmqctl.operations.fleet.looking`
- :mod:`~rmqctl.operations.fleet.processes`
- :mod:`~rmqctl.operations.fleet.run`
- :mod:`~rmqctl.operations.fleet.state`
- :mod:`~rmqctl.operations.fleet.stores`
- :mod:`~rmqctl.operations.fleet.sums`
"""
