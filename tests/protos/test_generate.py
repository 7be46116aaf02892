"""Generation of code, and the check of the committed code."""

import subprocess
import sys
from pathlib import Path

import pytest

from protos import generate
from protos.generate import TREES, GenerationError, Tree, drift, write

_EMPTY = 'syntax = "proto3";\npackage sample.v1;\nmessage Empty {}\n'
_CALLS = (
    'syntax = "proto3";\npackage sample.v1;\nimport "sample/v1/empty.proto";\n'
    "service Calls {\n  rpc Call(Empty) returns (Empty);\n}\n"
)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """A tree with two .proto files and their generated code."""
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    tree = Tree("some/place")
    (tree.root / "sample/v1").mkdir(parents=True)
    (tree.root / "sample/v1/empty.proto").write_text(_EMPTY)
    (tree.root / "sample/v1/calls.proto").write_text(_CALLS)
    write(tree)
    return tree


@pytest.mark.parametrize("tree", TREES, ids=lambda tree: tree.location)
def test_committed_code_is_up_to_date(tree: Tree) -> None:
    assert drift(tree) == []


def test_a_generated_tree_is_up_to_date(tree: Tree) -> None:
    assert drift(tree) == []
    assert sorted(tree.committed()) == [
        "sample/v1/calls_pb2.py",
        "sample/v1/calls_pb2.pyi",
        "sample/v1/calls_pb2_grpc.py",
        "sample/v1/calls_pb2_grpc.pyi",
        "sample/v1/empty_pb2.py",
        "sample/v1/empty_pb2.pyi",
    ]


def test_imports_are_relocated_and_descriptors_are_not(tree: Tree) -> None:
    committed = tree.committed()
    for name, text in committed.items():
        assert "from sample.v1 import" not in text, name
    assert "from some.place.sample.v1 import empty_pb2" in committed["sample/v1/calls_pb2.py"]
    assert "from some.place.sample.v1 import empty_pb2" in committed["sample/v1/calls_pb2_grpc.py"]
    assert "DESCRIPTOR, 'some.place.sample.v1.calls_pb2'" in committed["sample/v1/calls_pb2.py"]
    assert "# source: sample/v1/calls.proto" in committed["sample/v1/calls_pb2.py"]
    assert "'/sample.v1.Calls/Call'" in committed["sample/v1/calls_pb2_grpc.py"]


def test_a_changed_contract_is_drift(tree: Tree) -> None:
    (tree.root / "sample/v1/empty.proto").write_text(_EMPTY.replace("{}", "{ string name = 1; }"))
    lines = drift(tree)
    assert [line.partition(":")[0] for line in lines] == [
        "some/place/sample/v1/empty_pb2.py",
        "some/place/sample/v1/empty_pb2.pyi",
    ]
    assert all("lines to add" in line for line in lines)


def test_a_missing_file_is_drift(tree: Tree) -> None:
    (tree.root / "sample/v1/calls_pb2_grpc.py").unlink()
    assert drift(tree) == ["some/place/sample/v1/calls_pb2_grpc.py: missing"]


def test_a_file_without_a_source_is_drift_until_it_is_deleted(tree: Tree) -> None:
    (tree.root / "sample/v1/calls.proto").unlink()
    assert len(drift(tree)) == 4
    assert all(line.endswith("no .proto file generates it") for line in drift(tree))
    write(tree)
    assert drift(tree) == []
    assert "sample/v1/calls_pb2.py" not in tree.committed()


def test_other_files_are_not_touched(tree: Tree) -> None:
    other = tree.root / "sample/v1/other.py"
    other.write_text("")
    write(tree)
    assert other.exists()
    assert drift(tree) == []


def test_an_invalid_proto_file_raises(tree: Tree) -> None:
    (tree.root / "sample/v1/empty.proto").write_text("syntax = invalid")
    with pytest.raises(GenerationError, match=r"sample/v1/empty\.proto"):
        drift(tree)


def test_check_exits_with_the_differences(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generate, "TREES", (tree,))
    monkeypatch.setattr(sys, "argv", ["generate", "--check"])
    generate.main()
    (tree.root / "sample/v1/calls_pb2.py").unlink()
    with pytest.raises(SystemExit, match=r"make protos.*\n.*calls_pb2\.py: missing"):
        generate.main()
    monkeypatch.setattr(sys, "argv", ["generate"])
    generate.main()
    assert drift(tree) == []
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("package", "modules"),
    [
        ("protos.apache.rocketmq.v2", "service_pb2, service_pb2_grpc, definition_pb2, admin_pb2, admin_pb2_grpc"),
        ("tests.conformance.protos.grpc.testing", "empty_pb2, messages_pb2, test_pb2, test_pb2_grpc"),
    ],
    ids=["rocketmq", "interop"],
)
def test_import_without_warnings(package: str, modules: str) -> None:
    statement = f"from {package} import {modules}"
    root = Path(__file__).resolve().parent.parent.parent
    subprocess.run([sys.executable, "-W", "error", "-c", statement], cwd=root, check=True, timeout=60)
