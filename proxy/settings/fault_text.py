"""The texts of faults in data that pydantic validates: settings, rules, users and requests to the admin API."""

from collections.abc import Mapping
from typing import Any

# Pydantic puts it before the texts of validators.
_VALUE_ERROR = "Value error, "


def fault_text(fault: Mapping[str, Any]) -> str:
    """Return the text of one of `ValidationError.errors()`, for operators."""
    return str(fault["msg"]).removeprefix(_VALUE_ERROR)
