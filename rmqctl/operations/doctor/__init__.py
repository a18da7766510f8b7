"""Before a broker starts: what its start would do to a store, and what can be done before.

Other rooms use:

- :mod:`~rmqctl.operations.doctor.checkpoint`
- :mod:`~rmqctl.operations.doctor.corrupt`
- :mod:`~rmqctl.operations.doctor.lint`
- :mod:`~rmqctl.operations.doctor.portrait`
- :mod:`~rmqctl.operations.doctor.simulatestart`
"""
