"""Reading as clients do: pull, search by time, follow what grows.

Other rooms use:

- :mod:`~rmqctl.engine.read.batchunits`
- :mod:`~rmqctl.engine.read.bytime`
- :mod:`~rmqctl.engine.read.follow`
- :mod:`~rmqctl.engine.read.getbatch`
- :mod:`~rmqctl.engine.read.getcompacted`
- :mod:`~rmqctl.engine.read.getmessage`
- :mod:`~rmqctl.engine.read.getstored`
- :mod:`~rmqctl.engine.read.lines`
"""
