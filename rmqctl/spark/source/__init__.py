"""Reads rows from stores: the data source, its splits and columns, and streams.

Other rooms use:

- :mod:`~rmqctl.spark.source.datasource`
- :mod:`~rmqctl.spark.source.split`
"""
