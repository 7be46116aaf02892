import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from grpc_gateway.options import Options
from grpc_gateway.server import ServerOptions
from protocol_negotiation.peer import HostPort
from protocol_negotiation.tls import ClientAuth, TlsMode
from proxy.__main__ import _flags, _parse
from proxy.embedded.broker.settings import BrokerSettings
from proxy.embedded.store.options import StoreOptions
from proxy.settings.model import ConfigError, Settings, check_backend, load

Load = Callable[..., Settings]


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Settings from a TOML text, environment variables without their prefix, and flags."""
    for name in os.environ:
        if name.startswith("GANTRY_"):
            monkeypatch.delenv(name)

    def loads(toml: str = "", env: dict[str, str] | None = None, **flags: Any) -> Settings:
        for name, value in (env or {}).items():
            monkeypatch.setenv(f"GANTRY_{name}", value)
        file = tmp_path / "gantry.toml"
        file.write_text(toml)
        return load(file, flags)

    return loads


def test_nothing_has_to_be_set(loaded: Load) -> None:
    settings = loaded()
    assert [item.address for item in settings.listen] == [":8080"]
    assert settings.cluster.namesrv == []
    assert settings.tls.files is None
    assert load(None, {}) == settings


@pytest.mark.parametrize(
    ("toml", "env", "flags", "timeout", "names"),
    [
        ("", {}, {}, 10, []),
        ("[cluster]\nrequest_timeout = 7\nnamesrv = ['f:1']", {}, {}, 7, ["f:1"]),
        ("[cluster]\nrequest_timeout = 7", {"CLUSTER__REQUEST_TIMEOUT": "5"}, {}, 5, []),
        ("[cluster]\nrequest_timeout = 7\nnamesrv = 'f:1'", {"CLUSTER__NAMESRV": "e:1"}, {}, 7, ["e:1"]),
        (
            "[cluster]\nrequest_timeout = 7\nnamesrv = 'f:1'",
            {"CLUSTER__NAMESRV": "e:1", "CLUSTER__REQUEST_TIMEOUT": "5"},
            {"cluster": {"namesrv": "x:1;y:2"}},
            5,
            ["x:1", "y:2"],
        ),
    ],
)
def test_later_sources_win_key_by_key(
    loaded: Load, toml: str, env: dict[str, str], flags: dict[str, Any], timeout: float, names: list[str]
) -> None:
    cluster = loaded(toml, env, **flags).cluster
    assert (cluster.request_timeout, cluster.namesrv) == (timeout, names)


def test_a_file_that_was_read_once_is_forgotten(loaded: Load) -> None:
    loaded("log_level = 'debug'")
    assert load(None, {}).log_level == "info"


@pytest.mark.parametrize(
    ("env", "key", "value"),
    [
        ({"LISTEN": ":80;:81"}, "listen", [":80", ":81"]),
        ({"LISTEN": " [::1]:80 , unix:/run/gantry ;"}, "listen", ["[::1]:80", "unix:/run/gantry"]),
        ({"CLUSTER__NAMESRV": "a:1;b:2"}, "namesrv", ["a:1", "b:2"]),
        ({"CLUSTER__NAMESRV": "a:1"}, "namesrv", ["a:1"]),
        ({"CLUSTER": '{"namesrv": "a:1"}'}, "namesrv", ["a:1"]),
    ],
)
def test_lists_are_one_text_in_the_environment(loaded: Load, env: dict[str, str], key: str, value: list[str]) -> None:
    settings = loaded("", env)
    assert {"listen": [item.address for item in settings.listen], "namesrv": settings.cluster.namesrv}[key] == value


@pytest.mark.parametrize(
    ("env", "read"),
    [
        ({"TLS__MODE": "disabled"}, lambda s: s.tls.mode is TlsMode.DISABLED),
        ({"LIMITS__FRAME": "4096"}, lambda s: s.limits.frame == 4096),
        ({"SYNC__ENABLED": "false"}, lambda s: not s.sync.enabled),
        ({"BORN_HOST": "0"}, lambda s: not s.born_host),
        ({"METRICS_LISTEN": ":9090"}, lambda s: s.metrics_listen == ":9090"),
        ({"TLS__CLIENT_AUTH": "required", "TLS__CLIENT_CA": "/ca"}, lambda s: s.tls.client_auth is ClientAuth.REQUIRED),
    ],
)
def test_values_of_every_kind_come_from_the_environment(
    loaded: Load, env: dict[str, str], read: Callable[[Settings], bool]
) -> None:
    assert not read(loaded())
    assert read(loaded("", env))


def test_what_kubernetes_puts_into_the_environment_of_a_service_named_gantry_is_no_setting(loaded: Load) -> None:
    assert loaded("", {"SERVICE_HOST": "10.0.0.1", "PORT": "tcp://10.0.0.1:8080"}) == loaded()


def test_listeners_are_addresses_or_tables(loaded: Load) -> None:
    short, long = loaded(
        """
        [[listen]]
        address = ":80"
        [[listen]]
        address = ":81"
        broker = "broker-a"
        trusted_proxies = "10.0.0.0/8;::1"
        advertise = "a"
        advertise_rules = [{networks = ["192.0.2.0/24"], address = "b:1"}]
        """
    ).listen
    assert (short.broker, short.trusted_proxies, short.advertised.address) == (None, [], None)
    assert (long.broker, [str(net) for net in long.trusted_proxies]) == ("broker-a", ["10.0.0.0/8", "::1/128"])
    assert (long.advertised.address, long.advertised.rules[0].address) == ("a", "b:1")


@pytest.mark.parametrize(
    ("toml", "complaints"),
    [
        ("nonsense = 1", ["nonsense: there is no such setting"]),
        ("[cluster]\nnonsense = 1", ["cluster.nonsense: there is no such setting"]),
        ("[cluster]\nconnections_per_broker = 'two'", ["cluster.connections_per_broker: "]),
        ("[cluster]\nconnections_per_broker = 0", ["cluster.connections_per_broker: "]),
        ("[cluster]\nnamesrv = ['a:1', 'b']", ["cluster.namesrv.1: ", "'b'"]),
        ("[cluster]\nnamesrv = ':9876'", ["cluster.namesrv.0: ", "':9876'"]),
        ("[cluster]\nnamesrv = 'unix:/n'", ["cluster.namesrv.0: "]),
        ("[cluster]\nnamesrv = 7", ["cluster.namesrv: "]),
        ("cluster = 7", ["cluster: "]),
        ("listen = [':80', ':99999']", ["listen.1.address: ", "':99999'"]),
        ("listen = []", ["listen: "]),
        ("listen = ''", ["listen: "]),
        ("listen = [':80', ':81', ':80']", ["listen: ", "two listeners have the name :80"]),
        (
            "listen = [{address = ':80', name = 'a'}, {address = ':81', name = 'a'}]",
            ["listen: ", "two listeners have the name a"],
        ),
        (
            "listen = [{address = ':80', broker = 'b'}, {address = ':81', broker = 'b'}, ':82', ':83']",
            ["listen: ", "two listeners have the broker b"],
        ),
        ("listen = [{name = 'x'}]", ["listen.0.address: "]),
        ("listen = [{address = ':80', advertise = 'a:b:c'}]", ["listen.0.advertise: ", "a:b:c"]),
        ("listen = [{address = ':80', trusted_proxies = ['x']}]", ["listen.0.trusted_proxies.0"]),
        (
            "listen = [{address = ':80', advertise_rules = [{networks = ['::/0'], address = ''}]}]",
            ["listen.0.advertise_rules.0.address: "],
        ),
        ("log_level = 'loud'", ["log_level: "]),
        ("client_expiry = 120", ["client_expiry: "]),
        ("metrics_listen = '9090'", ["metrics_listen: ", "'9090'"]),
        ("[limits]\nframe = 16777217", ["limits.frame: "]),
        ("[limits]\nframe = 1\nbuffer = -1", ["limits.frame: ", "limits.buffer: "]),
        ("[tls]\nmode = 'on'", ["tls.mode: "]),
        ("[tls]\ncertificate = '/c'", ["tls: ", "certificate and key belong together"]),
        ("[tls]\nkey = '/k'", ["tls: ", "certificate and key belong together"]),
        ("[tls]\nmode = 'enforcing'", ["tls: ", "no certificate"]),
        ("[tls]\nclient_auth = 'required'", ["tls: ", "client_auth needs client_ca"]),
        ("[tls", ["gantry.toml: "]),
        ("[embedded]\nlisten = ':0'", ["embedded.listen: ", "':0'"]),
        ("[embedded]\nadvertise = 'mq.example.com:9876'", ["embedded.advertise: ", "IP address"]),
        ("[embedded]\nsync = 'never'", ["embedded.sync: ", "'always', 'interval' or 'os'"]),
        ("[embedded]\nsegment_size = 1000\nqueues = 0", ["embedded.segment_size: ", "embedded.queues: "]),
        ("[embedded]\nname = 'a b'", ["embedded.name: "]),
    ],
)
def test_every_error_names_its_key(loaded: Load, toml: str, complaints: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(toml)
    for complaint in complaints:
        assert complaint in str(caught.value)


@pytest.mark.parametrize(
    ("env", "key"),
    [
        ({"CLUSTER__NAMESRV": "a"}, "cluster.namesrv.0"),
        ({"CLUSTER__NONSENSE": "1"}, "cluster.nonsense"),
        ({"LISTEN": "x"}, "listen.0.address"),
        ({"CLUSTER": "no json"}, '"cluster"'),
        ({"LIMITS__REQUESTS": "many"}, "limits.requests"),
    ],
)
def test_errors_from_the_environment_name_their_key_too(loaded: Load, env: dict[str, str], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded("", env)
    assert key in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.toml: No such file"):
        load(tmp_path / "absent.toml", {})


@pytest.mark.parametrize(
    ("toml", "served"),
    [
        ("certificate = '/c'\nkey = '/k'", True),
        ("certificate = '/c'\nkey = '/k'\nmode = 'enforcing'", True),
        ("certificate = '/c'\nkey = '/k'\nmode = 'disabled'", False),
        ("mode = 'permissive'", False),
    ],
)
def test_tls_is_spoken_where_it_is_complete(loaded: Load, toml: str, served: bool) -> None:
    assert (loaded(f"[tls]\n{toml}").tls.files is not None) == served


def test_the_key_password_is_never_shown(loaded: Load) -> None:
    settings = loaded("[tls]\ncertificate = '/c'\nkey = '/k'", {"TLS__KEY_PASSWORD": "sesame"})
    assert settings.tls.files is not None
    assert settings.tls.files.key_password == "sesame"
    for shown in (settings, settings.tls, settings.tls.files):
        assert "sesame" not in f"{shown!r} {shown!s}"


@pytest.mark.parametrize(
    "toml", ["[tls]\nkey_password = 'sesame'\nmode = 'on'", "[tls]\nkey = 5\nkey_password = 'sesame'"]
)
def test_nor_is_it_in_a_complaint(loaded: Load, toml: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(toml)
    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "addresses", "names", "level"),
    [
        ([], [":8080"], [], "info"),
        (["--listen", ":1", "--listen", "[::1]:2"], [":1", "[::1]:2"], [], "info"),
        (["--namesrv", "a:1;b:2", "--log-level", "debug"], [":8080"], ["a:1", "b:2"], "debug"),
    ],
)
def test_flags(loaded: Load, arguments: list[str], addresses: list[str], names: list[str], level: str) -> None:
    settings = loaded(**_flags(_parse(["serve", *arguments])))
    assert [item.address for item in settings.listen] == addresses
    assert (settings.cluster.namesrv, settings.log_level) == (names, level)


# The embedded broker.


@pytest.mark.parametrize(
    ("arguments", "listen", "directory", "level"),
    [
        (["serve", "--embedded", "d"], ":8080", "d", "info"),
        (["demo"], "127.0.0.1:8080", "gantry-demo", "warning"),
        (["demo", "--dir", "d", "--listen", ":1", "--log-level", "info"], ":1", "d", "info"),
    ],
)
def test_flags_of_the_embedded_broker(
    loaded: Load, arguments: list[str], listen: str, directory: str, level: str
) -> None:
    settings = loaded(**_flags(_parse([*arguments, "--embedded-listen", "127.0.0.1:9876"])))
    assert ([item.address for item in settings.listen], settings.log_level) == ([listen], level)
    assert (settings.embedded.directory, settings.embedded.listen) == (Path(directory), "127.0.0.1:9876")
    check_backend(settings)


def test_a_flag_leaves_the_rest_of_the_file_s_table(loaded: Load) -> None:
    settings = loaded("[embedded]\nsync = 'os'", **_flags(_parse(["serve", "--embedded", "d"]))).embedded
    assert (settings.directory, settings.sync) == (Path("d"), "os")


@pytest.mark.parametrize(
    ("toml", "complaints"),
    [
        ("", ["--namesrv", "--embedded"]),
        ("cluster.namesrv = 'a:1'\nembedded.directory = '/d'", ["cluster.namesrv (a:1)", "embedded.directory (/d)"]),
        ("cluster.namesrv = 'a:1'\nembedded.listen = ':1'", ["embedded.listen needs"]),
    ],
)
def test_exactly_one_of_cluster_and_embedded_broker(loaded: Load, toml: str, complaints: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        check_backend(loaded(toml))
    for complaint in complaints:
        assert complaint in str(caught.value)


def test_the_embedded_table_is_what_store_and_broker_go_by(loaded: Load) -> None:
    here = HostPort("10.0.0.1", 7)
    defaults = loaded().embedded
    assert defaults.store_options() == StoreOptions()
    assert defaults.broker_settings(here) == BrokerSettings(host="10.0.0.1", port=7)
    toml = """
[embedded]
name = "b"
sync_interval = 2.5
retention_size = 2000000
retention_time = 0
queues = 3
max_delay = 1.5
transaction_interval = 0.25
"""
    changed = loaded(toml).embedded
    kept = StoreOptions(sync_interval=2500, retention_size=2_000_000, retention_time=None)
    assert changed.store_options() == kept
    broker = changed.broker_settings(here)
    assert (broker.name, broker.default_queues, broker.longest_delay) == ("b", 3, 1500)
    assert broker.transaction_interval == 250


def test_replicas_share_only_what_both_can_reach(loaded: Load) -> None:
    assert loaded("cluster.namesrv = 'a:1'").shared
    assert not loaded("cluster.namesrv = 'a:1'\nsync.enabled = false").shared
    assert not loaded("embedded.directory = '/d'").shared
    assert loaded("embedded.directory = '/d'\nembedded.listen = ':9876'").shared


# gRPC.


def test_the_grpc_table_is_what_the_service_goes_by(loaded: Load) -> None:
    options = loaded().grpc.options(90.0)
    assert options == Options()
    toml = """
[grpc]
max_body = 1000
send_attempts = 5
metric_collector = "otel.test:4317"
"""
    options = loaded(toml, {"GRPC__MAX_POLLING": "10"}).grpc.options(45.0)
    assert (options.max_body, options.max_polling, options.client_expiry) == (1000, 10.0, 45.0)
    assert options.publishing_backoff == (5, *Options().publishing_backoff[1:])
    assert str(options.metric_collector) == "otel.test:4317"


def test_the_grpc_table_is_what_the_server_goes_by(loaded: Load) -> None:
    defaults = loaded().grpc.server_options(120.0)
    assert defaults.limits == ServerOptions().limits
    assert defaults.upkeep == replace(ServerOptions().upkeep, idle=120.0)
    toml = "[grpc]\nmax_message = 8388608\nmax_streams = 7\nping_after = 0\nmax_age = 60.0"
    options = loaded(toml).grpc.server_options(30.0)
    assert (options.max_receive_message, options.max_send_message) == (2**23, 2**23)
    assert options.limits.concurrent_streams == 7
    assert (options.upkeep.ping_after, options.upkeep.idle, options.upkeep.age) == (None, 30.0, 60.0)


@pytest.mark.parametrize(
    ("toml", "complaint"),
    [
        ('transport = "netty"', "grpc.transport:"),
        ("min_polling = 30.0", "grpc: Value error, min_polling is more than max_polling"),
        ("max_invisible = 1.0", "grpc: Value error, min_invisible is more than max_invisible"),
        ("max_body = 67108864", "grpc: Value error, max_message has no room for max_body and max_properties"),
        ("receive_batch = 33", "grpc.receive_batch:"),
        ('metric_collector = ":4317"', "grpc.metric_collector:"),
        ("speed = 1", "grpc.speed: there is no such setting"),
    ],
)
def test_what_cannot_be_is_named(loaded: Load, toml: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as wrong:
        loaded(f"[grpc]\n{toml}")
    assert str(wrong.value).startswith(complaint)
