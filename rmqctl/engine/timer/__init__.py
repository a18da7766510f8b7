"""The timer's files of 5.x, for reading: the wheel, the log behind it, the check point.

Other rooms use:

- :mod:`~rmqctl.engine.timer.timercheck`
- :mod:`~rmqctl.engine.timer.timerlog`
- :mod:`~rmqctl.engine.timer.wheel`
"""
