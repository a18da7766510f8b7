"""Stores on Apache Spark: the same results as without it, for more data.

Only this room imports pyspark. All values come from the engine's scanner, queues and index. Damage
is passed on as rows, because Spark retries a task that raises, and exceptions lose their class on
the way to the driver.

    from rmqctl.spark import RocketMQDataSource
    spark.dataSource.register(RocketMQDataSource)
    spark.read.format("rocketmq").option("structure", "commitlog").load("/data/rocketmq/store")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rmqctl.spark.procedures.stores import Stores, import_messages, store
    from rmqctl.spark.sink.newstore import write_store
    from rmqctl.spark.source.datasource import RocketMQDataSource, scan

_HOMES = {
    "RocketMQDataSource": "rmqctl.spark.source.datasource",
    "Stores": "rmqctl.spark.procedures.stores",
    "import_messages": "rmqctl.spark.procedures.stores",
    "scan": "rmqctl.spark.source.datasource",
    "store": "rmqctl.spark.procedures.stores",
    "write_store": "rmqctl.spark.sink.newstore",
}
__all__ = [
    "RocketMQDataSource",
    "Stores",
    "import_messages",
    "scan",
    "store",
    "write_store",
]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module 'rmqctl.spark' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
