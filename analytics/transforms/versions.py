"""SDK versions as numbers: "5.0.7", and "V5_3_3" from remoting clients."""

from pyspark.sql import Column
from pyspark.sql import functions as f


def numbers(version: Column) -> Column:
    """Return the first three numbers of a version as an array, which sorts as versions do: "V4_9_4_SNAPSHOT" is [4, 9,
    4]. Null without any.
    """
    found = f.slice(f.regexp_extract_all(version, f.lit(r"(\d{1,9})"), f.lit(1)), 1, 3)
    return f.when(f.size(found) > 0, f.transform(found, lambda part: part.cast("int")))
