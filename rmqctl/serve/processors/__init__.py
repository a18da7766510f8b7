"""The answers to requests: one function for each request code, over the state and the store.

A function answers at once, or returns the look at the store that it needs first; it never waits.

Other rooms use:

- :mod:`~rmqctl.serve.processors.access`
- :mod:`~rmqctl.serve.processors.arrivals`
- :mod:`~rmqctl.serve.processors.checks`
- :mod:`~rmqctl.serve.processors.delivery`
- :mod:`~rmqctl.serve.processors.pull`
- :mod:`~rmqctl.serve.processors.put`
- :mod:`~rmqctl.serve.processors.queues`
- :mod:`~rmqctl.serve.processors.refused`
- :mod:`~rmqctl.serve.processors.request`
- :mod:`~rmqctl.serve.processors.table`
"""
