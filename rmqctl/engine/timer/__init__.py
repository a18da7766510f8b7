"""The files of 5.x's timer (wheel, timer log and check point): read, and made anew.

Other rooms use:

- :mod:`~rmqctl.engine.timer.newtimer`
- :mod:`~rmqctl.engine.timer.timercheck`
- :mod:`~rmqctl.engine.timer.timerlog`
- :mod:`~rmqctl.engine.timer.wheel`
"""
