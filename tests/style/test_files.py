"""Rules of the style page about files."""

import re
import subprocess

from tests.paths import ROOT

_MOST_LINES = 500
# protoc writes modules named test_pb2.
_IMPORT_OF_TESTS = re.compile(r"^ *(from|import) tests\.([\w.]+\.)?test_(?!pb2)", re.MULTILINE)


def test_files_stay_below_500_lines() -> None:
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    # protoc writes the others.
    files = [name for name in listed.stdout.split() if "_pb2" not in name and (ROOT / name).exists()]
    assert files
    assert [name for name in files if len((ROOT / name).read_text().splitlines()) >= _MOST_LINES] == []


def test_tests_share_code_through_modules_without_tests() -> None:
    listed = subprocess.run(["git", "ls-files", "tests/*.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    importing = {
        name
        for name in listed.stdout.split()
        if (ROOT / name).exists() and _IMPORT_OF_TESTS.search((ROOT / name).read_text())
    }
    assert importing == set()
