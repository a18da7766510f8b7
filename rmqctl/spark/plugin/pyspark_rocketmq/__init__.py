"""Makes the data source known to Spark by its short name, ``rocketmq``, unasked.

Spark imports every package of the driver's Python that is called ``pyspark_…`` and registers its
``DefaultSource``. Wheels have this one beside ``rmqctl``. What this raises would take all other
sources of the session away, too: where a package is missing there is no source here.
"""

try:
    from rmqctl.spark.source.datasource import RocketMQDataSource as DefaultSource
except ImportError:
    __all__: list[str] = []
else:
    __all__ = ["DefaultSource"]
