"""A fixture that loads settings from texts."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proxy.settings.loading import load
from proxy.settings.model import Settings

Load = Callable[..., Settings]


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """A function that loads settings from a TOML text, environment variables without their prefix, and flags."""
    for name in os.environ:
        if name.startswith("GANTRY_"):
            monkeypatch.delenv(name)

    def loads(toml: str = "", env: dict[str, str] | None = None, **flags: Any) -> Settings:
        for name, value in (env or {}).items():
            monkeypatch.setenv(f"GANTRY_{name}", value)
        file = tmp_path / "gantry.toml"
        file.write_text(toml)
        return load(file, flags)

    return loads
