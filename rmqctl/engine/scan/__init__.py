"""The hot loop: reads a log as batches of columns.

Other rooms use:

- :mod:`~rmqctl.engine.scan.batch`
- :mod:`~rmqctl.engine.scan.bodycrc`
- :mod:`~rmqctl.engine.scan.buffers`
- :mod:`~rmqctl.engine.scan.choice`
- :mod:`~rmqctl.engine.scan.columns`
- :mod:`~rmqctl.engine.scan.plain`
- :mod:`~rmqctl.engine.scan.properties`
- :mod:`~rmqctl.engine.scan.ranges`
- :mod:`~rmqctl.engine.scan.recordcrc`
- :mod:`~rmqctl.engine.scan.scanner`
- :mod:`~rmqctl.engine.scan.sorting`
- :mod:`~rmqctl.engine.scan.topics`
- :mod:`~rmqctl.engine.scan.tuning`
"""
