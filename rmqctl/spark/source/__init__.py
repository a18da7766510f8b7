"""From stores to rows: the data source, its splits and columns, streams.

Other rooms use:

- :mod:`~rmqctl.spark.source.datasource`
- :mod:`~rmqctl.spark.source.split`
"""
