"""HA: the protocol by which a master's log gets to its slaves; both of its ends, without I/O.

Other rooms use:

- :mod:`~rmqctl.serve.ha.frames`
- :mod:`~rmqctl.serve.ha.holding`
- :mod:`~rmqctl.serve.ha.master`
"""
