"""The TOML file as a source of settings."""

import tomllib
from pathlib import Path
from typing import Any

from pydantic_settings import PydanticBaseSettingsSource


class ConfigError(Exception):
    """The configuration is invalid; the message names each key and the reason."""


class FileSource(PydanticBaseSettingsSource):
    """Settings from the parsed file in `content`."""

    content: dict[str, Any] = {}  # noqa: RUF012  # replaced, never changed, and only during `loading.load`

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:
        return self.content.get(field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        return self.content


def read_file(file: Path) -> dict[str, Any]:
    """Parse a TOML file. Raises ConfigError."""
    try:
        return tomllib.loads(file.read_text())
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file}: {error}") from None
