"""Notebooks run from top to bottom in a Jupyter kernel, draw their pictures, and equal their programs."""

import ast
import asyncio
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from pyspark.sql import SparkSession

from analytics.notebooks import data
from analytics.record_errors import NoRecords
from tests.analytics.frames import at, connection, failed, member, receive, send
from tests.analytics.jobs.record_files import LIGHT, write

FOLDER = Path(__file__).resolve().parents[3] / "analytics" / "notebooks"
# Number of pictures of each notebook.
NOTEBOOKS = {
    "traffic_overview": 3,
    "latency_investigation": 2,
    "incident_forensics": 2,
    "capacity_planning": 3,
    "migration_progress": 2,
}
# For little data: compiling costs more than running. spark-submit, by which the notebooks' Spark starts, reads them
# from spark-defaults.conf in SPARK_CONF_DIR.
_QUICK_SPARK = f"""
spark.driver.extraJavaOptions {LIGHT}
spark.sql.codegen.wholeStage false
spark.sql.codegen.factoryMode NO_CODEGEN
spark.python.sql.dataFrameDebugging.enabled false
spark.sql.ui.explainMode simple
"""
# A program of one cell that removes the variables of a notebook from the kernel.
_EMPTYING = "# %%\nget_ipython().run_line_magic('reset', '-f')\n"


@pytest.fixture(scope="session")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write two days of sends and receives in both protocols, with half an hour in which a broker fails."""
    root = tmp_path_factory.mktemp("records")
    rows = []
    for minute in range(0, 2880, 10):
        for protocol, code in (("grpc", "SendMessage"), ("remoting", "SEND_MESSAGE_V2")):
            who = {"protocol": protocol, "code": code, "client_id": f"{protocol}-1", "trace_id": f"t{minute}{protocol}"}
            rows.append(send(at(minute), latency_us=1000 + minute, **who))
        rows.append(receive(at(minute, 2), trace_id=f"t{minute}grpc", client_id="consumer"))
    rows += [failed(at(1440 + minute / 2)) for minute in range(60)]
    write(root, rows)
    write(root, [connection(at(5)), connection(at(9), event="close", cause="reset")], of="connections")
    write(root, [member(at(1))], of="members")
    return root


def test_every_notebook_is_listed() -> None:
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == set(NOTEBOOKS)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook_equals_its_ipynb_and_defines_nothing(name: str) -> None:
    # Its import compiles grammars for seconds, which every process that collects tests would spend.
    import jupytext

    program = jupytext.read(FOLDER / f"{name}.py")
    notebook = jupytext.read(FOLDER / f"{name}.ipynb")
    assert [cell.source for cell in notebook.cells] == [cell.source for cell in program.cells]
    # The file contains no output.
    assert not any(cell.get("outputs") for cell in notebook.cells)
    tree = ast.parse((FOLDER / f"{name}.py").read_text())
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Lambda)]


def test_a_span_without_requests_has_the_sentence_of_the_jobs(
    spark: SparkSession, records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANTRY_RECORDS", str(records))
    with pytest.raises(NoRecords, match=r"no records of requests in .* since 2030-01-01"):
        data.opened(since=datetime(2030, 1, 1, tzinfo=UTC))


@pytest.fixture(scope="module")
def executed(records: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """Return the outputs of each notebook's cells. One kernel for all, emptied between them: Java starts once."""
    home = tmp_path_factory.mktemp("jupyter")
    own = {"GANTRY_RECORDS": str(records), "GANTRY_MASTER": "local[1]", "GANTRY_ZONE": "Europe/Berlin"}
    (home / "spark-defaults.conf").write_text(_QUICK_SPARK)
    own["SPARK_CONF_DIR"] = str(home)
    # Settings and history of the user who runs the tests have no effect.
    own |= {f"JUPYTER_{name}_DIR": str(home) for name in ("CONFIG", "DATA", "RUNTIME")} | {"IPYTHONDIR": str(home)}
    return asyncio.run(_execute(os.environ | own))


async def _execute(environment: dict[str, str]) -> dict[str, list[Any]]:
    import jupytext
    from nbclient import NotebookClient

    emptying = jupytext.reads(_EMPTYING, "py:percent")
    outputs: dict[str, list[Any]] = {name: [] for name in NOTEBOOKS}
    client = NotebookClient(emptying, timeout=300, kernel_name="python3", allow_errors=True)
    async with client.async_setup_kernel(env=environment, cwd=str(FOLDER.parents[1])):
        for name in NOTEBOOKS:
            client.nb = jupytext.read(FOLDER / f"{name}.ipynb")
            client.nb.cells += emptying.cells
            client.reset_execution_trackers()
            for index, cell in enumerate(client.nb.cells):
                await client.async_execute_cell(cell, index)
                outputs[name] += cell.get("outputs", [])
    return outputs


# The first of them executes all notebooks.
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("name", "pictures"), NOTEBOOKS.items())
def test_notebook_in_a_jupyter_kernel_draws_and_writes_no_warning(
    executed: dict[str, list[Any]], name: str, pictures: int
) -> None:
    outputs = executed[name]
    assert [each for each in outputs if each["output_type"] in ("error", "stream")] == []
    drawn = [each["data"]["image/svg+xml"] for each in outputs if "image/svg+xml" in each.get("data", {})]
    assert len(drawn) == pictures
    for picture in drawn:
        # More than an empty frame.
        assert len(list(ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}path"))) > 5
