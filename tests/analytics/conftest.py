from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from analytics.session import session

# Seconds. Starting Spark and compiling the first plans is slow on a busy machine.
_TIMEOUT = 600
_HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests of `make exactness` only, unless it runs; give Spark tests more time.

    A timeout in the middle of a call to the JVM would break all later tests.
    """
    if "complete" not in config.option.markexpr:
        left_out = [item for item in items if item.get_closest_marker("complete") and item.path.is_relative_to(_HERE)]
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_TIMEOUT))


@pytest.fixture(scope="package")
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
        # Debug information costs JVM calls for each column and a description of each plan.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.sql.ui.explainMode": "simple",
    }
    spark = session("gantry-tests", "local[1]", memory="1g", options=options)
    yield spark
    spark.stop()
