"""What the start of a broker would do to its store, and what can be done before it.

Other rooms use:

- :mod:`~rmqctl.operations.doctor.checkpoint`
- :mod:`~rmqctl.operations.doctor.corrupt`
- :mod:`~rmqctl.operations.doctor.lint`
- :mod:`~rmqctl.operations.doctor.portrait`
- :mod:`~rmqctl.operations.doctor.simulatestart`
- :mod:`~rmqctl.operations.doctor.startrows`
"""
