"""Before a broker starts: what its start would do to a store.

Other rooms use:

- :mod:`~rmqctl.operations.doctor.simulatestart`
"""
