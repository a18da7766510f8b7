"""Registers the data source with Spark automatically, under its short name ``rocketmq``.

Spark imports every package of the driver's Python whose name begins with ``pyspark_``, and
registers its ``DefaultSource``. Wheels contain this package beside ``rmqctl``. An exception here
would remove all other sources from the session as well. So if a package is missing, this one has
no source.
"""

try:
    from rmqctl.spark.source.datasource import RocketMQDataSource as DefaultSource
except ImportError:
    __all__: list[str] = []
else:
    __all__ = ["DefaultSource"]
