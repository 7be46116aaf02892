"""Settings as keys and values, with secrets masked."""

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from proxy.settings.model import Settings
from proxy.settings.secret_names import MASK
from proxy.settings.traffic_records import redacted

_RECORDS = "traffic.directory"


def flat(model: BaseModel, prefix: str = "", brief: bool = False) -> Iterator[tuple[str, Any]]:
    """Yield key (`cluster.namesrv`) and JSON value of every setting; brief: lists of tables without their defaults."""
    for name in type(model).model_fields:
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield from flat(value, f"{prefix}{name}.", brief)
            continue
        if brief and isinstance(value, list):
            value = [item.model_dump(exclude_defaults=True) if isinstance(item, BaseModel) else item for item in value]
        yield prefix + name, to_jsonable_python(value, fallback=str)


def _secrets(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Yield the keys of secrets: fields with `repr=False`."""
    for name, info in model.model_fields.items():
        if not info.repr:
            yield prefix + name
        table = info.annotation
        if isinstance(table, type) and issubclass(table, BaseModel):
            yield from _secrets(table, f"{prefix}{name}.")


_SECRETS = frozenset(_secrets(Settings))


def mask(key: str, value: Any) -> Any:
    """Return the value of a setting, masked if it is a secret; of a URL of records its user, password and options."""
    if value is None or key not in _SECRETS:
        return value
    return redacted(value) if key == _RECORDS else MASK
