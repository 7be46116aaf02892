"""Compile a copy of the sources, and run the tests of the compiled rooms on it.

    python -m tests.compiled.run [pytest's arguments …]

The copy is in build/compiled-tests; a second run compiles what has changed. Exits with pytest's status, or 1 if the
compilation fails.
"""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COPY = ROOT / "build" / "compiled-tests"
ROOMS = ("tests/compiled", "tests/remoting", "tests/grpc_gateway", "tests/proxy/core", "tests/proxy/frontends")


def copy_sources() -> None:
    """Copy the files of the repository that differ, and remove files that are gone."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    names = [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]
    for old in COPY.rglob("*.py"):
        if "build" not in old.relative_to(COPY).parts and str(old.relative_to(COPY)) not in names:
            old.unlink()
    for name in names:
        source, target = ROOT / name, COPY / name
        if not target.exists() or target.read_bytes() != source.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)


def main(arguments: list[str]) -> int:
    """Run the command; return its exit status."""
    COPY.mkdir(parents=True, exist_ok=True)
    copy_sources()
    if subprocess.run([sys.executable, "hatch_build.py"], cwd=COPY, check=False).returncode:
        return 1
    tests = [sys.executable, "-m", "pytest", "-q", "-m", "not external and not cluster and not slow"]
    return subprocess.run([*tests, *(arguments or ROOMS)], cwd=COPY, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
