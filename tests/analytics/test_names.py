"""Parts of names."""

import pytest

from analytics.incidents.names import host, tenant


@pytest.mark.parametrize(("name", "expected"), [("acme%orders", "acme"), ("orders", "default"), ("acme%a%b", "acme")])
def test_a_tenant_stands_before_the_name(name: str, expected: str) -> None:
    assert tenant(name) == expected


def test_a_host_remains_when_its_client_restarts() -> None:
    own = host("10.0.0.1@7#1", "192.0.2.0/24")
    assert host("10.0.0.1@9#2", "192.0.2.0/24") == own
    assert own not in {host("10.0.0.2@7#1", "192.0.2.0/24"), host("10.0.0.1@7#1", "198.51.100.0/24")}
