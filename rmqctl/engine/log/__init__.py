"""The commit log: walked, appended to, spread over directories.

Other rooms use:

- :mod:`~rmqctl.engine.log.commitlog`
- :mod:`~rmqctl.engine.log.end`
- :mod:`~rmqctl.engine.log.logwriter`
- :mod:`~rmqctl.engine.log.misnamed`
- :mod:`~rmqctl.engine.log.onward`
- :mod:`~rmqctl.engine.log.openlog`
- :mod:`~rmqctl.engine.log.progress`
- :mod:`~rmqctl.engine.log.spread`
- :mod:`~rmqctl.engine.log.times`
"""
