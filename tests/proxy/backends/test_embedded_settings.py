"""The settings and the address of the embedded broker, by the settings of the replica."""

from typing import Any

import pytest

from protocol_negotiation.peer import HostPort
from proxy.backends.embedded_settings import broker_address, broker_settings, store_options
from proxy.embedded.broker.settings import BrokerSettings
from proxy.embedded.store.options import StoreOptions
from proxy.settings.embedded import EmbeddedSettings
from proxy.settings.model import Settings


def test_embedded_settings_become_options_of_store_and_broker() -> None:
    address = HostPort("10.0.0.1", 7)
    defaults = EmbeddedSettings()
    assert store_options(defaults) == StoreOptions()
    assert broker_settings(defaults, address) == BrokerSettings(host="10.0.0.1", port=7)
    changed = EmbeddedSettings(
        name="b",
        sync_interval=2.5,
        retention_size=2_000_000,
        retention_time=0,
        queues=3,
        max_delay=1.5,
        transaction_interval=0.25,
    )
    assert store_options(changed) == StoreOptions(sync_interval=2500, retention_size=2_000_000, retention_time=None)
    broker = broker_settings(changed, address)
    assert (broker.name, broker.default_queues, broker.max_delay) == ("b", 3, 1500)
    assert broker.transaction_interval == 250


@pytest.mark.parametrize(
    ("listen", "embedded", "told"),
    [
        (["127.0.0.1:8080"], {}, "127.0.0.1:8080"),
        (["unix:/x", {"address": "[::1]:81", "broker": "b"}, "[::1]:82"], {}, "[::1]:82"),
        (["unix:/x"], {}, "127.0.0.1:10911"),
        (["localhost:80"], {}, "127.0.0.1:80"),
        (["127.0.0.1:8080"], {"listen": "127.0.0.2:9876"}, "127.0.0.2:9876"),
        (["127.0.0.1:8080"], {"listen": ":9876", "advertise": "10.1.2.3:99"}, "10.1.2.3:99"),
    ],
)
def test_broker_address_follows_advertise_and_listen_settings(
    listen: list[Any], embedded: dict[str, Any], told: str
) -> None:
    assert str(broker_address(Settings(listen=listen, embedded=embedded))) == told


def test_broker_address_of_a_wildcard_is_one_ip_address() -> None:
    found = broker_address(Settings(listen=[":8080"]))
    assert found.ip is not None
    assert found.port == 8080


@pytest.mark.parametrize(("retention", "delay"), [(3600, 3_600_000), (0, 259_200_000), (864_000, 259_200_000)])
def test_no_message_is_delayed_for_longer_than_it_is_kept(retention: float, delay: int) -> None:
    settings = EmbeddedSettings(retention_time=retention)
    assert broker_settings(settings, HostPort("10.0.0.1", 7)).max_delay == delay
