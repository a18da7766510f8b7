"""What a broker knows beside its messages, in memory: clients, groups, topics, offsets, locks, and
the pulls that wait.

None of it is safe for threads: whoever answers requests has one thread for it. No clock either: who
calls says what time it is, in milliseconds.

Other rooms use:

- :mod:`~rmqctl.serve.state.accounts`
- :mod:`~rmqctl.serve.state.calls`
- :mod:`~rmqctl.serve.state.clients`
- :mod:`~rmqctl.serve.state.groups`
- :mod:`~rmqctl.serve.state.locks`
- :mod:`~rmqctl.serve.state.offsets`
- :mod:`~rmqctl.serve.state.owntopics`
- :mod:`~rmqctl.serve.state.parked`
- :mod:`~rmqctl.serve.state.statistics`
- :mod:`~rmqctl.serve.state.subscription`
- :mod:`~rmqctl.serve.state.topics`
"""
