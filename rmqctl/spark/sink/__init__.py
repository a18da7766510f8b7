"""From rows to a new store.

Other rooms use:

- :mod:`~rmqctl.spark.sink.importer`
- :mod:`~rmqctl.spark.sink.newstore`
- :mod:`~rmqctl.spark.sink.writer`
"""
