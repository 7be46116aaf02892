from collections.abc import Iterator

import pytest

from tests.cluster.reports import add_logs
from tests.cluster.servers import Gantry
from tests.proxy.tools.cli.shell import Shell, embedded


@pytest.fixture(scope="session")
def gantry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gantry]:
    """Run `gantry serve` on the embedded broker."""
    directory = tmp_path_factory.mktemp("gantry")
    with Gantry(directory, "", embedded(directory / "data")) as gantry:
        yield gantry


@pytest.fixture
def shell(gantry: Gantry) -> Shell:
    return Shell(gantry.address)


@pytest.fixture(scope="session")
def authenticating(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """Run a server whose clients sign their requests; its super user is shell.ADMIN."""
    directory = tmp_path_factory.mktemp("authenticating")
    config = embedded(directory / "data") + (
        '\nsuper_user = "admin"\nsuper_secret = "admin-secret"\n[auth]\nbrokers = true\nanonymous = "deny"\n'
    )
    with Gantry(directory, "", config) as gantry:
        yield Shell(gantry.address)


pytest_runtest_makereport = add_logs
