"""HA: how a master's log gets to its slaves, both ends of it without I/O.

Other rooms use:

- :mod:`~rmqctl.serve.ha.frames`
- :mod:`~rmqctl.serve.ha.holding`
- :mod:`~rmqctl.serve.ha.master`
"""
