from tests.proxy.settings.conftest import Load


def test_listener_is_an_address_or_a_table(loaded: Load) -> None:
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


def test_connections_per_address_are_limited_by_default_and_zero_is_unlimited(loaded: Load) -> None:
    default, unlimited = loaded(
        """
        [[listen]]
        address = ":80"
        [[listen]]
        address = ":81"
        max_connections_per_address = 0
        """
    ).listen
    assert (default.max_connections_per_address, unlimited.max_connections_per_address) == (5_000, 0)
