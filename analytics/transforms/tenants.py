"""Tenants: RocketMQ's namespaces stand before a `%` in names of topics and groups."""

from pyspark.sql import Column
from pyspark.sql import functions as f

from analytics.transforms.operations import origin

# The tenant of names without a namespace.
DEFAULT = "default"


def tenant(name: Column) -> Column:
    """Return the namespace of a topic's or group's name, also behind %RETRY% and %DLQ%; null stays null."""
    own = origin(name)
    return f.when(name.isNull(), None).when(own.contains("%"), f.substring_index(own, "%", 1)).otherwise(DEFAULT)


def owner() -> Column:
    """Return the tenant of a record or a roll-up: of its topic, else of its group, else "default"."""
    return f.coalesce(tenant(f.col("topic")), tenant(f.col("group")), f.lit(DEFAULT))
