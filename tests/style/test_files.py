"""Rules of the style page about files."""

import subprocess

from tests.paths import ROOT

_MOST_LINES = 500


def test_files_stay_below_500_lines() -> None:
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    # protoc writes the others.
    files = [name for name in listed.stdout.split() if "_pb2" not in name and (ROOT / name).exists()]
    assert files
    assert [name for name in files if len((ROOT / name).read_text().splitlines()) >= _MOST_LINES] == []
