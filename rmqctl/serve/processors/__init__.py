"""What is answered to each request: one function a request code, over the state and the store.

A function answers at once, or says what has to be read of the store first; it waits for nothing.

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
