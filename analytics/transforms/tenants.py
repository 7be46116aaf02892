"""Whose a topic or group is: RocketMQ's namespaces stand before a `%`."""

from pyspark.sql import Column
from pyspark.sql import functions as f

from analytics.transforms.operations import origin

# Of names without a namespace.
DEFAULT = "default"


def tenant(name: Column) -> Column:
    """The namespace of a topic's or group's name, behind %RETRY% and %DLQ% too; null stays null."""
    own = origin(name)
    return f.when(name.isNull(), None).when(own.contains("%"), f.substring_index(own, "%", 1)).otherwise(DEFAULT)


def owner() -> Column:
    """The tenant of a record or a roll-up: of its topic, else of its group, else "default"."""
    return f.coalesce(tenant(f.col("topic")), tenant(f.col("group")), f.lit(DEFAULT))
