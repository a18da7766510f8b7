"""Stores on object storage: files that are fetched piece by piece.

Other rooms use:

- :mod:`~rmqctl.spark.remote.remote`
- :mod:`~rmqctl.spark.remote.stores`
- :mod:`~rmqctl.spark.remote.urls`
"""
