"""A broker's services beside put and pull: delays, transactions, retention, search.

Other rooms use:

- :mod:`~rmqctl.engine.services.anyqueue`
- :mod:`~rmqctl.engine.services.multiqueues`
- :mod:`~rmqctl.engine.services.pop`
- :mod:`~rmqctl.engine.services.remade`
- :mod:`~rmqctl.engine.services.retention`
- :mod:`~rmqctl.engine.services.schedule`
- :mod:`~rmqctl.engine.services.search`
- :mod:`~rmqctl.engine.services.timer`
- :mod:`~rmqctl.engine.services.timerset`
- :mod:`~rmqctl.engine.services.transaction`
"""
