"""Listeners that other hosts reach need authentication, or the word that they do not."""

from typing import Any

import pytest

from proxy.settings.loading import ConfigError, check_access, load

CERTIFICATE = {"certificate": "c", "key": "k", "client_ca": "a"}
REQUIRED = {"mode": "enforcing", "client_auth": "required", **CERTIFICATE}


@pytest.mark.parametrize(
    "settings",
    [
        {"listen": "127.0.0.1:8080;[::1]:8080;localhost:1;unix:/run/gantry.sock"},
        {"auth": {"anonymous": "allow"}},
        {"auth": {"users": "users.toml"}},
        {"auth": {"plain_acl": "plain_acl.yml"}},
        {"tls": REQUIRED},
        {"tls": REQUIRED, "listen": [{"address": ":1"}, {"address": "127.0.0.1:2", "tls": False}]},
        {"tls": REQUIRED, "embedded": {"directory": "d", "listen": ":9876"}},
        {"auth": {"users": "users.toml"}, "listen": [{"address": ":1", "tls": False}]},
    ],
)
def test_listeners_for_loopback_or_with_authentication_are_permitted(settings: dict[str, Any]) -> None:
    check_access(load(None, settings))


@pytest.mark.parametrize(
    ("settings", "address"),
    [
        ({}, ":8080"),
        ({"listen": "127.0.0.1:1;0.0.0.0:2"}, "0.0.0.0:2"),
        ({"listen": "gantry.example.com:1"}, "gantry.example.com:1"),
        ({"tls": {"mode": "permissive", "client_auth": "optional", **CERTIFICATE}}, ":8080"),
        ({"tls": REQUIRED, "listen": [{"address": ":1"}, {"address": ":2", "tls": False}]}, ":2"),
        ({"listen": "127.0.0.1:1", "embedded": {"directory": "d", "listen": ":9876"}}, ":9876"),
    ],
)
def test_listeners_that_let_strangers_do_everything_are_refused(settings: dict[str, Any], address: str) -> None:
    with pytest.raises(ConfigError, match="nothing authenticates them") as raised:
        check_access(load(None, settings))
    assert str(raised.value).startswith(f"{address}: ")
