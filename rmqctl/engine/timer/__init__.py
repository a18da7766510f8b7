"""The timer's files of 5.x, the wheel, the log behind it, the check point: read, and made anew.

Other rooms use:

- :mod:`~rmqctl.engine.timer.newtimer`
- :mod:`~rmqctl.engine.timer.timercheck`
- :mod:`~rmqctl.engine.timer.timerlog`
- :mod:`~rmqctl.engine.timer.wheel`
"""
