"""Notebooks run from top to bottom, draw their pictures, and equal their .ipynb."""

import ast
import runpy
from pathlib import Path
from xml.etree import ElementTree

import jupytext
import pytest
from pyspark.sql import SparkSession

from tests.analytics.frames import at, connection, failed, member, receive, send
from tests.analytics.jobs.record_files import write

FOLDER = Path(__file__).resolve().parents[3] / "analytics" / "notebooks"
# Number of pictures of each notebook.
NOTEBOOKS = {
    "traffic_overview": 3,
    "latency_investigation": 2,
    "incident_forensics": 2,
    "capacity_planning": 3,
    "migration_progress": 2,
}


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
    program = jupytext.read(FOLDER / f"{name}.py")
    notebook = jupytext.read(FOLDER / f"{name}.ipynb")
    assert [cell.source for cell in notebook.cells] == [cell.source for cell in program.cells]
    # The file contains no output.
    assert not any(cell.get("outputs") for cell in notebook.cells)
    tree = ast.parse((FOLDER / f"{name}.py").read_text())
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Lambda)]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("name", "pictures"), NOTEBOOKS.items())
def test_notebook_runs_from_top_to_bottom(
    spark: SparkSession, records: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, pictures: int
) -> None:
    monkeypatch.setenv("GANTRY_RECORDS", str(records))
    monkeypatch.setenv("GANTRY_PICTURES", str(tmp_path))
    runpy.run_path(str(FOLDER / f"{name}.py"))
    drawn = sorted(tmp_path.glob("*.svg"))
    assert len(drawn) == pictures
    for path in drawn:
        # More than an empty frame.
        assert len(list(ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}path"))) > 5
    spark.catalog.clearCache()
