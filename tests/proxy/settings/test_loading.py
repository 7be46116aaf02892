from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from protocol_negotiation.tls import TlsMode
from proxy.__main__ import _flags, command_parser
from proxy.settings.loading import ConfigError, check_backend, load
from proxy.settings.model import Settings
from tests.proxy.settings.conftest import Load


def test_every_setting_has_a_default(loaded: Load) -> None:
    settings = loaded()
    assert [item.address for item in settings.listen] == [":8080"]
    assert settings.cluster.namesrv == []
    assert settings.tls.files is None
    assert load(None, {}) == settings


def test_address_of_the_admin_api_for_the_command_line_is_no_setting(loaded: Load) -> None:
    assert loaded("", {"ADMIN": "http://127.0.0.1:8090"}) == loaded()
    assert loaded("", {"ADMIN": '{"survey_interval": 7}'}).admin.survey_interval == 7


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
def test_later_sources_override_earlier_ones_key_by_key(
    loaded: Load, toml: str, env: dict[str, str], flags: dict[str, Any], timeout: float, names: list[str]
) -> None:
    cluster = loaded(toml, env, **flags).cluster
    assert (cluster.request_timeout, cluster.namesrv) == (timeout, names)


def test_settings_of_a_file_do_not_leak_into_the_next_load(loaded: Load) -> None:
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
def test_environment_holds_lists_as_text(loaded: Load, env: dict[str, str], key: str, value: list[str]) -> None:
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
    ],
)
def test_environment_sets_values_of_every_type(
    loaded: Load, env: dict[str, str], read: Callable[[Settings], bool]
) -> None:
    assert not read(loaded())
    assert read(loaded("", env))


def test_variables_that_kubernetes_sets_for_a_service_named_gantry_are_ignored(loaded: Load) -> None:
    assert loaded("", {"SERVICE_HOST": "10.0.0.1", "PORT": "tcp://10.0.0.1:8080"}) == loaded()


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
        ("[embedded]\ndirectory = 5", ["embedded.directory: Input should be a path, in quotes"]),
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
def test_error_in_the_file_names_its_key(loaded: Load, toml: str, complaints: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(toml)
    for complaint in complaints:
        assert complaint in str(caught.value)


@pytest.mark.parametrize(
    ("env", "key"),
    [
        ({"CLUSTER__NAMESRV": "a"}, "cluster.namesrv.0"),
        ({"CLUSTER__NONSENSE": "1"}, "cluster.nonsense"),
        ({"CLUSTERS__NAMESRV": "a:1"}, "clusters.namesrv: there is no such setting"),
        ({"LIMIT__A__B": "1"}, "limit.a.b: there is no such setting"),
        ({"LISTEN": "x"}, "listen.0.address"),
        ({"CLUSTER": "no json"}, '"cluster"'),
        ({"LIMITS__REQUESTS": "many"}, "limits.requests"),
    ],
)
def test_error_in_the_environment_names_its_key(loaded: Load, env: dict[str, str], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded("", env)
    assert key in str(caught.value)


def test_variables_of_commands_and_of_kubernetes_are_no_settings(loaded: Load) -> None:
    loaded("", {"ENDPOINT": "a:1", "PORT_8080_TCP_ADDR": "10.0.0.1", "SERVICE_HOST": "10.0.0.1"})


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.toml: No such file"):
        load(tmp_path / "absent.toml", {})


@pytest.mark.parametrize(
    ("arguments", "addresses", "names", "level"),
    [
        ([], [":8080"], [], "info"),
        (["--listen", ":1", "--listen", "[::1]:2"], [":1", "[::1]:2"], [], "info"),
        (["--namesrv", "a:1;b:2", "--log-level", "debug"], [":8080"], ["a:1", "b:2"], "debug"),
    ],
)
def test_serve_flags_set_their_keys(
    loaded: Load, arguments: list[str], addresses: list[str], names: list[str], level: str
) -> None:
    settings = loaded(**_flags(command_parser().parse_args(["serve", *arguments])))
    assert [item.address for item in settings.listen] == addresses
    assert (settings.cluster.namesrv, settings.log_level) == (names, level)


@pytest.mark.parametrize(
    ("arguments", "listen", "directory", "level"),
    [
        (["serve", "--embedded", "d"], ":8080", "d", "info"),
        (["demo"], "127.0.0.1:8080", "gantry-demo", "warning"),
        (["demo", "--dir", "d", "--listen", ":1", "--log-level", "info"], ":1", "d", "info"),
    ],
)
def test_flags_of_the_embedded_broker_set_their_keys(
    loaded: Load, arguments: list[str], listen: str, directory: str, level: str
) -> None:
    settings = loaded(**_flags(command_parser().parse_args([*arguments, "--embedded-listen", "127.0.0.1:9876"])))
    assert ([item.address for item in settings.listen], settings.log_level) == ([listen], level)
    assert (settings.embedded.directory, settings.embedded.listen) == (Path(directory), "127.0.0.1:9876")
    check_backend(settings)


def test_flag_keeps_the_other_keys_of_its_table(loaded: Load) -> None:
    settings = loaded(
        "[embedded]\nsync = 'os'", **_flags(command_parser().parse_args(["serve", "--embedded", "d"]))
    ).embedded
    assert (settings.directory, settings.sync) == (Path("d"), "os")


@pytest.mark.parametrize(
    ("toml", "complaints"),
    [
        ("", ["--namesrv", "--embedded"]),
        ("cluster.namesrv = 'a:1'\nembedded.directory = '/d'", ["cluster.namesrv (a:1)", "embedded.directory (/d)"]),
        ("cluster.namesrv = 'a:1'\nembedded.listen = ':1'", ["embedded.listen needs"]),
    ],
)
def test_check_backend_requires_exactly_one_backend(loaded: Load, toml: str, complaints: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        check_backend(loaded(toml))
    for complaint in complaints:
        assert complaint in str(caught.value)
