"""Build a compiled wheel from a copy of the sources, and run the tests of the compiled rooms on its modules.

    python -m tests.compiled.run [pytest's arguments …]

The copy is in build/compiled-tests, and its compiled modules are those of the wheel in its folder dist; a second run
compiles what has changed. Exits with pytest's status, or 1 if there is no compiled wheel.
"""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from hatch_build import compiled, sources

ROOT = Path(__file__).resolve().parents[2]
COPY = ROOT / "build" / "compiled-tests"
_WHEELS = COPY / "dist"
ROOMS = (
    "tests/compiled",
    "tests/remoting",
    "tests/grpc_gateway",
    "tests/proxy/auth",
    "tests/proxy/core",
    "tests/proxy/frontends",
)
_PARALLEL = ("--numprocesses", "4", "--dist", "loadscope", "--no-loadscope-reorder")


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
        if not {"build", "dist"} & set(old.relative_to(COPY).parts) and str(old.relative_to(COPY)) not in names:
            old.unlink()
    for name in names:
        source, target = ROOT / name, COPY / name
        if not target.exists() or target.read_bytes() != source.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)


def build_wheel() -> bool:
    """Build a compiled wheel and put its compiled modules beside their sources; return whether it has all of them."""
    for old in (*_WHEELS.glob("*.whl"), *compiled(COPY)):
        old.unlink()
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(_WHEELS)]
    if subprocess.run(build, cwd=COPY, env={**os.environ, "GANTRY_PURE": "0"}, check=False).returncode:
        return False
    (path,) = _WHEELS.glob("*.whl")
    with zipfile.ZipFile(path) as wheel:
        modules = [name for name in wheel.namelist() if name.endswith(".so")]
        wheel.extractall(COPY, modules)
    missing = {Path(name).with_suffix("") for name in sources()} - {Path(name[: name.index(".")]) for name in modules}
    print(f"{path.name}: {len(modules)} compiled modules, {len(missing)} missing")
    return not missing


def main(arguments: list[str]) -> int:
    """Run the command; return its exit status."""
    COPY.mkdir(parents=True, exist_ok=True)
    copy_sources()
    if not build_wheel():
        return 1
    tests = [sys.executable, "-m", "pytest", "-q", *_PARALLEL, "-m", "not external and not cluster and not slow"]
    return subprocess.run([*tests, *(arguments or ROOMS)], cwd=COPY, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
