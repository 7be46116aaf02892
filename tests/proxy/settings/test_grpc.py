from dataclasses import replace

import pytest

from grpc_gateway.gateway_options import GatewayOptions
from grpc_gateway.server import ServerOptions
from proxy.settings.loading import ConfigError
from tests.proxy.settings.conftest import Load


def test_grpc_table_sets_the_options_of_the_service(loaded: Load) -> None:
    options = loaded().grpc.options(90.0)
    assert options == GatewayOptions()
    toml = """
[grpc]
max_body = 1000
send_attempts = 5
metric_collector = "otel.test:4317"
"""
    options = loaded(toml, {"GRPC__MAX_POLLING": "10"}).grpc.options(45.0)
    assert (options.max_body, options.max_polling, options.client_expiry) == (1000, 10.0, 45.0)
    assert options.publishing_backoff == (5, *GatewayOptions().publishing_backoff[1:])
    assert str(options.metric_collector) == "otel.test:4317"
    assert (options.handle_grace, loaded().grpc.options(90.0, has_embedded_broker=True).handle_grace) == (0.5, 0.0)


def test_grpc_table_sets_the_options_of_the_server(loaded: Load) -> None:
    defaults = loaded().grpc.server_options(120.0)
    assert defaults.limits == ServerOptions().limits
    assert defaults.timeouts == replace(ServerOptions().timeouts, ping_after=5.0, ping_timeout=7.0, idle=120.0)
    toml = "[grpc]\nmax_message = 8388608\nmax_streams = 7\nping_after = 0\nmax_age = 60.0"
    options = loaded(toml).grpc.server_options(30.0)
    assert (options.max_receive_message, options.max_send_message) == (2**23, 2**23)
    assert options.limits.concurrent_streams == 7
    assert (options.timeouts.ping_after, options.timeouts.idle, options.timeouts.age) == (None, 30.0, 60.0)


@pytest.mark.parametrize(
    ("toml", "complaint"),
    [
        ('transport = "netty"', "grpc.transport:"),
        ("min_polling = 30.0", "grpc: min_polling is more than max_polling"),
        ("max_invisible = 1.0", "grpc: min_invisible is more than max_invisible"),
        ("max_body = 67108864", "grpc: max_message has no room for max_body and max_properties"),
        ("receive_batch = 33", "grpc.receive_batch:"),
        ('metric_collector = ":4317"', "grpc.metric_collector:"),
        ("speed = 1", "grpc.speed: there is no such setting"),
    ],
)
def test_invalid_value_is_named(loaded: Load, toml: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as wrong:
        loaded(f"[grpc]\n{toml}")
    assert str(wrong.value).startswith(complaint)
