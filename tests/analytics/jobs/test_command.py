"""The command line, without Spark where an answer needs none."""

import json
import subprocess
import sys
import zipfile
from contextlib import nullcontext
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from analytics import command
from analytics.command import main
from analytics.jobs.incidents import find
from analytics.jobs.package import package
from analytics.jobs.report import Order
from analytics.record_errors import NoRecords, Skipped
from proxy.__main__ import main as gantry
from proxy.tools import extensions

# Modules whose installed copies would hide files missing from the archive.
OURS = ("analytics", "proxy", "remoting", "grpc_gateway", "protocol_negotiation", "protos")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["report", "r"], "the following arguments are required: --out"),
        (["report", "r", "--out", "o", "--since", "yesterday"], "'yesterday' is no time"),
        (["report", "r", "--out", "o", "--since", "2026-10-19T14:00"], "names no time zone"),
        (["report", "r", "--out", "o", "--zone", "Mars"], "'Mars' is no time zone"),
        (["rollup", "r", "--out", "o", "--zone", "../etc"], "is no time zone"),
        (["stream", "r", "--out", "o", "--window", "1 fortnight"], "say a number and a unit"),
        (["stream", "r", "--out", "o", "--error-rate", "5"], "is no share"),
        (["stream", "r", "--out", "o", "--p99", "-1"], "is no time in milliseconds"),
        (["stream", "r", "--out", "o", "--webhook", "ftp://x"], "is no http:// or https:// address"),
        (["demo", "d", "--size", "0"], "is no positive whole number"),
        (["report", "r", "--out", "o", "--option", "x"], "say KEY=VALUE"),
        (["report", "r", "--out", "o", "--rules", "/no/such"], "/no/such cannot be read: No such file or directory"),
        (["report", "r", "--out", "o", "--facts", "/dev"], "/dev cannot be read: Is a directory"),
        (["paint"], "invalid choice: 'paint'"),
    ],
)
def test_bad_arguments_print_one_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "text", "sentence"),
    [
        (
            "--rules",
            b'[[rule]]\nname = "few"\nkind = "limit"\nmessages = -1\n[[rule]]\nname = "none"\nkind = "limit"\n',
            "rule 'few', messages: Input should be greater than 0 (and 1 more)",
        ),
        ("--rules", b"[[rule]]\nkind = 'limit'\nrequests = 1\n", "rule no. 1, name: required"),
        ("--facts", b"[limits]\nreplicas = 0\n", "limits.replicas: Input should be greater than or equal to 1"),
        ("--facts", b"\xff", "is no text in UTF-8"),
    ],
)
def test_bad_file_error_names_its_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, text: bytes, sentence: str
) -> None:
    path = tmp_path / "file.toml"
    path.write_bytes(text)
    with pytest.raises(SystemExit) as stopped:
        main(["report", "r", "--out", "o", option, str(path)])
    assert stopped.value.code == 2
    (last,) = capsys.readouterr().err.splitlines()[-1:]
    assert last.startswith(f"gantry analytics report: error: argument {option}: {path}")
    assert last.endswith(sentence)


def test_gantry_passes_arguments_to_analytics(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        gantry(["analytics", "--help"])
    assert stopped.value.code == 0
    assert "usage: gantry analytics" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        gantry(["--help"])
    assert "analytics" in capsys.readouterr().out


def test_the_entry_point_is_installed() -> None:
    assert extensions.find("analytics") is command.main
    assert extensions.find("nothing") is None


def test_proxy_does_not_import_analytics(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(extensions, "find", lambda name: None)
    assert gantry(["analytics", "report"]) == 2
    assert "pip install 'rocketmq-gantry[analytics]'" in capsys.readouterr().err


def test_without_the_extra_the_error_names_it(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] == 'pyspark':\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Missing())\n"
        "from analytics.command import main\n"
        "sys.exit(main(['report', 'records', '--out', 'out']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 2
    assert done.stderr == "gantry analytics: pyspark is not installed: pip install 'rocketmq-gantry[analytics]'\n"


@pytest.mark.parametrize(
    ("fault", "sentences"),
    [
        (
            NoRecords("nothing", [Skipped("a.parquet", "it is empty")]),
            ["not read completely: a.parquet: it is empty", "nothing"],
        ),
        (
            PySparkException("Job aborted\nCaused by: java.io.IOException: No space\n\tat a.b"),
            ["Spark failed: No space"],
        ),
    ],
    ids=["nothing to read", "Spark fails"],
)
def test_a_fault_of_a_job_is_a_sentence_and_a_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], fault: Exception, sentences: list[str]
) -> None:
    def fail(_: object) -> None:
        raise fault

    monkeypatch.setattr(command, "_spark", fail)
    assert main(["rollup", "records", "--out", "out"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [sentence in line for sentence, line in zip(sentences, lines, strict=True)] == [True] * len(lines)


def test_detect_without_readable_files_names_them(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "requests" / "date=2026-10-19" / "hour=00"
    folder.mkdir(parents=True)
    (folder / "half.parquet").write_bytes(b"PAR1")
    with pytest.raises(NoRecords, match="there are no records of requests in") as raised:
        find(lambda: nullcontext(spark), str(tmp_path), Order())
    assert [each.reason for each in raised.value.skipped] == ["it is no Parquet file, or only the beginning of one"]


def test_generate_uses_its_own_parser(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["generate", str(tmp_path), "--records", "50", "--days", "1", "--incidents", "0", "--processes", "1"]) == 0
    )
    assert "requests in" in capsys.readouterr().out
    assert json.loads((tmp_path / "truth.json").read_text())["incidents"] == []


def test_package_is_complete_and_reproducible(tmp_path: Path) -> None:
    program, archive = package(tmp_path / "a")
    again = package(tmp_path / "b")
    assert [path.read_bytes() for path in again] == [program.read_bytes(), archive.read_bytes()]
    names = zipfile.ZipFile(archive).namelist()
    assert {"analytics/command.py", "analytics/report/page.html.j2", "proxy/observability/records/schema.py"} <= set(
        names
    )
    # Packages are found in the archive first and nowhere else afterwards: it must contain all that they import.
    jobs = ("command", "facts", "jobs.report", "jobs.rollups", "jobs.compaction", "jobs.streaming", "jobs.demo")
    code = (
        f"import importlib, sys; sys.path.insert(0, {str(archive)!r})\n"
        f"modules = [importlib.import_module('analytics.' + name) for name in {jobs}]\n"
        f"ours = [module for name, module in sys.modules.items() if name.partition('.')[0] in {OURS}]\n"
        "assert len(ours) > len(modules)\n"
        "assert not [module for module in ours if '.zip' not in module.__file__]\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr


def test_only_few_records_of_this_machine_are_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.parquet").write_bytes(bytes(1000))
    (tmp_path / "removed.parquet").symlink_to(tmp_path / "nowhere")
    assert command.is_small(str(tmp_path))
    assert not command.is_small(None)
    assert not command.is_small("s3a://traffic")
    assert not command.is_small(str(tmp_path / "nowhere"))
    monkeypatch.setattr(command, "_SMALL", 999)
    assert not command.is_small(str(tmp_path))


@pytest.mark.parametrize("arguments", [["detect"], ["report", "--out", "o"], ["rollup", "--out", "o"]])
def test_a_missing_directory_is_reported_without_spark(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("analytics.session.session", lambda *_, **__: pytest.fail("Spark was started"))
    assert main([*arguments, str(tmp_path / "nowhere")]) == 2
    assert f"there is no directory {tmp_path / 'nowhere'}" in capsys.readouterr().err
