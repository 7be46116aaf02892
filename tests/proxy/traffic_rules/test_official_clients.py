"""Official clients in a namespace, against a separate proxy process; no Java."""

from collections.abc import Iterator

import pytest

from tests.cluster.client import create_topic, unique
from tests.cluster.servers import HOST, Gantry, run_client
from tests.ports import free_port

pytestmark = [pytest.mark.anyio, pytest.mark.external]

_TENANT = """
[[rule]]
name = "tenant"
kind = "namespace"
namespace = "acme"
match.listeners = ["tenant"]
"""


class Addresses:
    """Addresses of the tenant's listener and of the broker."""

    def __init__(self, tenant: str, broker: str) -> None:
        self.tenant = tenant
        self.broker = broker


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Addresses]:
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
        yield Addresses(gantry.address, broker)


async def _create(addresses: Addresses, kind: str) -> str:
    """Create a topic in the tenant's namespace and return its name for the tenant."""
    real = await create_topic(addresses.broker, "acme%t", 4, kind.upper())
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
async def test_messages_of_a_tenant_round_trip(addresses: Addresses, client: str, mode: str, kind: str) -> None:
    topic = await _create(addresses, kind)
    arguments = (
        "--endpoint",
        addresses.tenant,
        "--topic",
        topic,
        "--group",
        unique("g"),
        "--kind",
        kind,
        "--mode",
        mode,
    )
    report = run_client(client, "roundtrip", "10", *arguments)
    assert report["ok"], report


async def test_a_tenants_messages_cross_protocols(addresses: Addresses) -> None:
    topic = await _create(addresses, "normal")
    arguments = ("--topic", topic, "--group", unique("g"), "--run", unique("run"))
    assert run_client("go-remoting", "produce", "10", "--endpoint", addresses.tenant, *arguments)["ok"]
    assert run_client("python-grpc", "consume", "10", "--endpoint", addresses.tenant, *arguments, "--mode", "simple")[
        "ok"
    ]
