"""Plans what a start does to a store; reads only.

Other rooms use:

- :mod:`~rmqctl.engine.start.holdback`
- :mod:`~rmqctl.engine.start.lastrecord`
- :mod:`~rmqctl.engine.start.logend`
- :mod:`~rmqctl.engine.start.model`
- :mod:`~rmqctl.engine.start.nearend`
- :mod:`~rmqctl.engine.start.plan`
"""
