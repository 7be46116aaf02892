from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from analytics.session import session

# Starting Spark and compiling the first plans takes as long as the machine is busy.
_TIMEOUT = 600


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """More time for what uses Spark: a time-out in the middle of a call to the JVM would break all tests after it."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_TIMEOUT))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One session for all tests: small frames, so compiling costs more than running."""
    options = {
        "spark.sql.shuffle.partitions": "1",
        "spark.default.parallelism": "1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.log.level": "ERROR",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.adaptive.enabled": "false",
        # Calls to the JVM for each column, and descriptions of each plan, for nobody.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.sql.ui.explainMode": "simple",
    }
    spark = session("gantry-tests", "local[1]", memory="1g", options=options)
    yield spark
    spark.stop()
