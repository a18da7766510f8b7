"""Stores in object storage, whose files are fetched piece by piece.

Other rooms use:

- :mod:`~rmqctl.spark.remote.remote`
- :mod:`~rmqctl.spark.remote.stores`
- :mod:`~rmqctl.spark.remote.urls`
"""
