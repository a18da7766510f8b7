"""The same facts in bulk, on Apache Spark: adds scale, never meaning.

The only room that imports pyspark. Every fact comes from the engine's scanner, queues and index;
damage travels as rows, because exceptions lose their class on the way and are retried.

    from rmqctl.spark import RocketMQDataSource
    spark.dataSource.register(RocketMQDataSource)
    spark.read.format("rocketmq").option("structure", "commitlog").load("/data/rocketmq/store")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rmqctl.spark.sink.newstore import write_store
    from rmqctl.spark.source.datasource import RocketMQDataSource, scan

__all__ = ["RocketMQDataSource", "scan", "write_store"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(name)
    if name == "write_store":
        from rmqctl.spark.sink.newstore import write_store

        return write_store
    from rmqctl.spark.source import datasource

    return getattr(datasource, name)
