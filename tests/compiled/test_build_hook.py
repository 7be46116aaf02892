"""The build hook: which wheels have compiled modules."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hatch_build import ROOT, CustomBuildHook


def build_data(directory: Path) -> dict[str, Any]:
    """Return the build data of a wheel after the hook."""
    data: dict[str, Any] = {"pure_python": True, "force_include": {}}
    _hook(directory).initialize("standard", data)
    return data


def _hook(directory: Path) -> CustomBuildHook:
    module = directory / "compiled" / "wheel" / "remoting" / "frame.cpython-311-x86_64-linux-gnu.so"
    module.parent.mkdir(parents=True)
    module.touch()
    nothing: Any = None
    return CustomBuildHook(str(ROOT), {}, nothing, nothing, str(directory), "wheel")


@pytest.fixture
def compilation(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """A compilation that ends with the status of the program `true` or `false`."""
    monkeypatch.setattr(sys, "executable", shutil.which(request.param))
    monkeypatch.delenv("GANTRY_PURE", raising=False)


@pytest.mark.parametrize("compilation", ["true"], indirect=True)
@pytest.mark.usefixtures("compilation")
def test_a_wheel_has_the_compiled_modules(tmp_path: Path) -> None:
    data = build_data(tmp_path)
    assert not data["pure_python"]
    assert data["infer_tag"]
    assert list(data["force_include"].values()) == ["remoting/frame.cpython-311-x86_64-linux-gnu.so"]


@pytest.mark.parametrize("compilation", ["false"], indirect=True)
@pytest.mark.usefixtures("compilation")
def test_a_wheel_is_pure_if_the_compilation_fails(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    data = build_data(tmp_path)
    assert data["pure_python"]
    assert data["force_include"] == {}
    assert "pure Python" in capfd.readouterr().err


@pytest.mark.parametrize("compilation", ["false"], indirect=True)
@pytest.mark.usefixtures("compilation")
def test_the_build_fails_where_a_compiled_wheel_is_required(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GANTRY_PURE", "0")
    with pytest.raises(subprocess.CalledProcessError):
        build_data(tmp_path)


@pytest.mark.parametrize("compilation", ["true"], indirect=True)
@pytest.mark.usefixtures("compilation")
def test_nothing_is_compiled_on_request_or_for_editable_installs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data: dict[str, Any] = {}
    hook = _hook(tmp_path)
    hook.initialize("editable", data)
    monkeypatch.setenv("GANTRY_PURE", "1")
    hook.initialize("standard", data)
    assert data == {}
