"""Writes rows to a new store, or appends them to an existing one.

Other rooms use:

- :mod:`~rmqctl.spark.sink.appender`
- :mod:`~rmqctl.spark.sink.firstlook`
- :mod:`~rmqctl.spark.sink.importer`
- :mod:`~rmqctl.spark.sink.newstore`
- :mod:`~rmqctl.spark.sink.smallimport`
- :mod:`~rmqctl.spark.sink.writer`
"""
