"""Official clients in a namespace, and with an alias, against a process of its own; no Java."""

from collections.abc import Iterator

import pytest

from tests.cluster.client import create_topic, unique
from tests.cluster.servers import HOST, Gantry, run_client
from tests.ports import free_port

pytestmark = pytest.mark.anyio

_TENANT = """
[[rule]]
name = "tenant"
kind = "namespace"
namespace = "acme"
match.listeners = ["tenant"]
"""


class Served:
    """Where the tenant, and where the broker itself, is to be reached."""

    def __init__(self, tenant: str, broker: str) -> None:
        self.tenant = tenant
        self.broker = broker


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    directory = tmp_path_factory.mktemp("rules")
    file = directory / "rules.toml"
    file.write_text(_TENANT)
    broker, port = f"{HOST}:{free_port()}", free_port()
    config = f"""
        rules.file = "{file}"
        admin.listen = "off"
        [[listen]]
        address = "{HOST}:{port}"
        name = "tenant"
        [embedded]
        directory = "{directory / "store"}"
        listen = "{broker}"
    """
    with Gantry(directory, "", config, port, listen=False) as gantry:
        yield Served(gantry.address, broker)


async def _create(served: Served, kind: str) -> str:
    """A topic of the tenant's; the name that the tenant has for it."""
    real = await create_topic(served.broker, "acme%t", 4, kind.upper())
    return real.removeprefix("acme%")


@pytest.mark.parametrize(
    ("client", "mode", "kind"),
    [
        ("python-grpc", "simple", "transaction"),
        ("go-grpc", "push", "fifo"),
        ("go-remoting", "push", "transaction"),
        ("go-remoting", "pull", "normal"),
    ],
)
async def test_round_trip(served: Served, client: str, mode: str, kind: str) -> None:
    topic = await _create(served, kind)
    words = ("--endpoint", served.tenant, "--topic", topic, "--group", unique("g"), "--kind", kind, "--mode", mode)
    report = run_client(client, "roundtrip", "10", *words)
    assert report["ok"], report


async def test_across_the_protocols_and_not_across_namespaces(served: Served) -> None:
    topic = await _create(served, "normal")
    words = ("--topic", topic, "--group", unique("g"), "--run", unique("run"))
    assert run_client("go-remoting", "produce", "10", "--endpoint", served.tenant, *words)["ok"]
    assert run_client("python-grpc", "consume", "10", "--endpoint", served.tenant, *words, "--mode", "simple")["ok"]
