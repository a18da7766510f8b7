"""Looks at many stores, with one row each: the list of stores, what is looked at, and the rows that
are kept of stores that have not changed.

Other rooms use:

- :mod:`~rmqctl.operations.fleet.counting`
- :mod:`~rmqctl.operations.fleet.looking`
- :mod:`~rmqctl.operations.fleet.processes`
- :mod:`~rmqctl.operations.fleet.run`
- :mod:`~rmqctl.operations.fleet.state`
- :mod:`~rmqctl.operations.fleet.stores`
- :mod:`~rmqctl.operations.fleet.sums`
"""
