from pathlib import Path

import pytest

from tests.proxy.embedded.bench import Bench

_CONTRACT = Path(__file__).parent / "contract"


@pytest.fixture
async def bench() -> Bench:
    return Bench()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`test_contract.py` runs the contract in slices; it is collected here where it was asked for by its path."""
    asked = any(_CONTRACT in (path, *path.parents) for path in map(_path, config.args))
    return True if collection_path == _CONTRACT and not asked else None


def _path(argument: str) -> Path:
    return Path(argument.partition("::")[0]).absolute()
