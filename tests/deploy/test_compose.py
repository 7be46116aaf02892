"""The Compose file, parsed by compose-go, the library of Docker Compose."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from protocol_negotiation.advertised_address import advertised
from protocol_negotiation.peer import HostPort, Peer
from tests.deploy.files import DEPLOY, drain_seconds, run, settings
from tests.tools import compose

# The first test that needs the tools builds them.
pytestmark = pytest.mark.timeout(900)

GANTRY = DEPLOY / "compose" / "gantry.toml"


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(compose(), "-format", "json", "compose.yaml"))
    return found


def test_all_objects_are_present(project: dict[str, Any]) -> None:
    own = {"gantry-1", "gantry-2", "access-point"}
    others = {"namesrv", "store-owner", "broker", "prometheus", "grafana"}
    assert set(project["services"]) == own | others
    assert all(Path(config["file"]).is_file() for config in project["configs"].values())


def test_images_have_tags(project: dict[str, Any]) -> None:
    for service in project["services"].values():
        name, _, tag = service["image"].rpartition(":")
        assert name
        assert tag[0].isdigit() or tag[0] == "v"


def test_ports_are_published_on_loopback_only(project: dict[str, Any]) -> None:
    ports = [port for service in project["services"].values() for port in service.get("ports", ())]
    assert ports
    assert {port["host_ip"] for port in ports} == {"127.0.0.1"}


def test_replicas_are_alike_and_confined(project: dict[str, Any]) -> None:
    one, two = (dict(project["services"][name]) for name in ("gantry-1", "gantry-2"))
    assert one.pop("hostname") != two.pop("hostname")
    assert one == two
    assert one["read_only"]
    assert one["tmpfs"] == ["/tmp"]
    assert one["cap_drop"] == ["ALL"]
    assert Path(one["build"]["context"], one["build"]["dockerfile"]) == DEPLOY / "Containerfile"


def test_health_check_is_that_of_the_image(project: dict[str, Any]) -> None:
    """HAProxy waits for it, and images in the OCI format have none."""
    for name in ("gantry-1", "gantry-2"):
        check = project["services"][name]["healthcheck"]
        assert (check["interval"], check["timeout"], check["start_period"], check["retries"]) == ("10s", "5s", "15s", 3)
        image = re.search(r"^HEALTHCHECK [^\[]*(\[.*\])$", (DEPLOY / "Containerfile").read_text(), re.MULTILINE)
        assert image is not None
        assert check["test"] == ["CMD", *json.loads(image[1])]


def test_broker_can_write_its_volume(project: dict[str, Any]) -> None:
    """The image's user is 3000; a new volume belongs to root."""
    owner, broker = project["services"]["store-owner"], project["services"]["broker"]
    assert owner["image"] == broker["image"]
    (volume,) = broker["volumes"]
    assert owner["volumes"] == [volume]
    assert owner["entrypoint"] == ["chown", "3000:3000", volume["target"]]
    assert broker["depends_on"]["store-owner"]["condition"] == "service_completed_successfully"


def test_stop_timeout_covers_a_drain(project: dict[str, Any]) -> None:
    grace = project["services"]["gantry-1"]["stop_grace_period"]
    assert grace == "30s"
    assert drain_seconds(settings(GANTRY)) < 30


@pytest.mark.parametrize(
    ("client", "told"),
    # The host, whose connections come by the gateway; a container; a remote client behind HAProxy.
    [("172.30.8.1", "127.0.0.1:8080"), ("172.30.8.9", "access-point:8080"), ("192.0.2.7", "127.0.0.1:8080")],
)
def test_each_client_gets_a_reachable_address(client: str, told: str) -> None:
    (item,) = settings(GANTRY).listen
    peer = Peer(HostPort(client, 50000), HostPort("172.30.8.4", 8080))
    assert str(advertised(peer, item.advertised)) == told


def test_the_networks_are_those_of_the_configuration(project: dict[str, Any]) -> None:
    (network,) = project["networks"]["inside"]["ipam"]["config"]
    assert [str(item) for item in settings(GANTRY).listen[0].trusted_proxies] == [network["subnet"]]


def test_prometheus_scrapes_both() -> None:
    assert settings(GANTRY).metrics_listen == ":9090"
    said = (DEPLOY / "compose" / "prometheus.yml").read_text()
    assert all(f'"{name}:9090"' in said for name in ("gantry-1", "gantry-2"))
