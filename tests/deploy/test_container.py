"""The Containerfile, checked by hadolint, and its build steps, run without a container engine."""

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol_negotiation.peer import HostPort
from tests.deploy.files import DEPLOY, ROOT, run
from tests.ports import free_port
from tests.proxy.tools.doctor.servers import codes, run_doctor

FILE = DEPLOY / "Containerfile"
Instruction = tuple[str, str]


def instructions() -> Iterator[list[Instruction]]:
    """Return the instructions of each stage, as (name, arguments)."""
    text = re.sub(r"^\s*#.*\n", "", FILE.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    stage: list[Instruction] = []
    for line in filter(str.strip, text.splitlines()):
        name, _, words = line.partition(" ")
        if name == "FROM" and stage:
            yield stage
            stage = []
        stage.append((name, " ".join(words.split())))
    yield stage


BUILD, IMAGE = instructions()


def arguments(stage: list[Instruction], name: str) -> list[str]:
    return [words for kind, words in stage if kind == name]


def test_hadolint_reports_nothing() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    assert run(hadolint, "--failure-threshold", "ignore", "Containerfile") == ""


def test_image_does_not_run_as_root() -> None:
    assert arguments(IMAGE, "USER") == ["10001:10001"]
    assert "--uid 10001" in arguments(IMAGE, "RUN")[0]


def test_image_stops_gracefully() -> None:
    assert arguments(IMAGE, "STOPSIGNAL") == ["SIGTERM"]
    # Gantry is the first process, so that it receives the signal.
    assert json.loads(arguments(IMAGE, "ENTRYPOINT")[0]) == ["gantry"]


def test_the_bases_are_pinned_and_of_one_version() -> None:
    (build,), (image,) = arguments(BUILD, "FROM"), arguments(IMAGE, "FROM")
    # The build needs a C compiler, which the slim image does not have.
    assert build == f"{image.replace('-slim', '')} AS build"
    assert re.fullmatch(r"docker\.io/library/python:3\.\d+\.\d+-slim-\w+", image)


def sources() -> list[str]:
    """Return the files that the build copies from the repository."""
    return [word for words in arguments(BUILD, "COPY") for word in words.split()[:-1]]


def test_copied_files_are_not_ignored() -> None:
    allowed = re.findall(r"^!(.*)$", (DEPLOY / "Containerfile.dockerignore").read_text(), re.MULTILINE)
    assert sorted(allowed) == sorted(sources())
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert set(packages["packages"]) <= set(sources())


# Locks.


def locked(file: Path) -> dict[str, str]:
    """Return versions by name."""
    return dict(re.findall(r"^([\w.-]+)==([^\s;]+)", file.read_text(), re.MULTILINE))


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_dependency_is_locked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = {normal(re.split(r"[<>=\[; ]", item)[0]) for item in project["project"]["dependencies"]}
    assert wanted - locked(DEPLOY / "requirements.lock").keys() == set()
    assert {normal(re.split(r"[<>=]", item)[0]) for item in project["build-system"]["requires"]} <= locked(
        DEPLOY / "build.lock"
    ).keys()


def test_image_has_the_tested_versions() -> None:
    tested = locked(ROOT / "requirements.lock")
    shipped = locked(DEPLOY / "requirements.lock") | locked(DEPLOY / "build.lock")
    assert {name: version for name, version in shipped.items() if tested.get(name, version) != version} == {}


@pytest.mark.parametrize("name", ["requirements.lock", "build.lock"])
def test_every_requirement_has_hashes(name: str) -> None:
    text = (DEPLOY / name).read_text()
    entries = re.split(r"^(?=[\w.-]+==)", text, flags=re.MULTILINE)[1:]
    assert entries
    assert all("--hash=sha256:" in entry for entry in entries)


# The build.


# Compilation takes minutes: `make compiled-test` builds the image as it is, `make test` a pure one by the same steps.
_COMPILES = os.environ.get("GANTRY_PURE") == "0"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run the RUN steps of the build stage in a directory instead of a container; yield its root."""
    root = tmp_path_factory.mktemp("image")
    shims = root / "shims"
    for folder in (shims, root / "src", root / "opt", root / "dist"):
        folder.mkdir()
    base = Path(sys.base_prefix, "bin", "python3").resolve()
    (shims / "python").write_text(f'#!/bin/sh\nexec {base} "$@"\n')
    (shims / "pip").write_text(f'#!/bin/sh\nexec {base} -m pip "$@"\n')
    for shim in shims.iterdir():
        shim.chmod(0o755)
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL_ENV"))}
    environment |= {"PATH": f"{shims}:/usr/bin:/bin", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    if not _COMPILES:
        environment["PIP_NO_COMPILE"] = "1"
    for name, words in BUILD:
        if name == "COPY":
            *from_, to = words.split()
            for source in from_:
                _copy(ROOT / source, root / "src" / to, source)
        elif name == "RUN":
            step = re.sub(r"(?<![\w.])/(build|opt|dist)\b", rf"{root}/\1", words)
            if not _COMPILES:
                step = step.replace("GANTRY_PURE=0", "GANTRY_PURE=1")
            done = subprocess.run(
                ["sh", "-euc", step], cwd=root / "src", env=environment, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"{step}\n{done.stdout}{done.stderr}"
    return root


def _copy(source: Path, to: Path, name: str) -> None:
    if source.is_dir():
        shutil.copytree(source, to, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        target = to / Path(name).name if to.is_dir() or name.endswith("/") or to.name in ("deploy", "") else to
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)


def test_build_requires_the_compiled_modules() -> None:
    assert any(name == "RUN" and "GANTRY_PURE=0" in words for name, words in BUILD)


# The build compiles, which takes minutes on a busy machine.
@pytest.mark.timeout(900)
def test_version_says_how_the_image_was_built(built: Path) -> None:
    said = run(built / "opt/gantry/bin/gantry", "--version")
    assert ("compiled" if _COMPILES else "pure") in said


@pytest.mark.timeout(900)
def test_built_image_serves(built: Path, tmp_path: Path) -> None:
    port = free_port()
    environment = {"PATH": f"{built}/opt/gantry/bin:/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
    command = ["gantry", "serve", "--listen", f"127.0.0.1:{port}", "--embedded", str(tmp_path / "store")]
    admin = free_port()
    environment["GANTRY_ADMIN__LISTEN"] = f"127.0.0.1:{admin}"
    (tmp_path / "work").mkdir()
    process = subprocess.Popen(
        [str(built / "opt/gantry/bin/gantry"), *command[1:]],
        cwd=tmp_path / "work",
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if "ready" in line:
                break
        assert "ready" in "".join(said[-1:]), "".join(said)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=30) as answer:
            assert answer.status == 200
        found = asyncio.run(run_doctor(HostPort("127.0.0.1", port)))
        assert {"remoting.answers", "grpc.answers", "health.ready"} <= codes(found)
        _healthy(environment, admin)
    finally:
        process.send_signal(signal.SIGTERM)
        _, rest = process.communicate(timeout=60)
    assert process.returncode == 0, rest
    # The root file system is read-only in the container.
    assert list((tmp_path / "work").iterdir()) == []


def _healthy(environment: dict[str, str], port: int) -> None:
    """Run the image's health check at this port, and at a closed port."""
    (check,) = arguments(IMAGE, "HEALTHCHECK")
    words: list[str] = json.loads(check.partition("CMD ")[2])
    for at, status in ((port, 0), (free_port(), 1)):
        command = [word.replace(":8090", f":{at}") for word in words]
        done = subprocess.run(command, env=environment, capture_output=True, check=False)
        assert done.returncode == status, done.stderr
