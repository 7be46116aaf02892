"""The settings of several workers."""

from pathlib import Path
from typing import Any

import pytest

from proxy.settings.loading import ConfigError, Sources
from proxy.settings.model import Settings
from proxy.workers.worker_settings import WorkerSources, check_workers, of_worker


def settings(**more: Any) -> Settings:
    return Settings(**{"listen": "127.0.0.1:8080", "cluster": {"namesrv": "ns:9876"}, "workers": 3, **more})


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ({"listen": "unix:/run/gantry"}, "listen: unix:/run/gantry cannot be shared by 3 workers: listen on TCP"),
        ({"listen": ":8080;127.0.0.1:0"}, "listen: 127.0.0.1:0 would be a different port for each of 3 workers"),
    ],
)
def test_settings_that_workers_cannot_share_are_rejected(more: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        check_workers(settings(**more))
    check_workers(settings(**more, workers=1))


def test_settings_that_workers_can_share_are_accepted() -> None:
    check_workers(settings())
    check_workers(settings(cluster={}, embedded={"directory": "/data"}))


@pytest.mark.parametrize(
    ("more", "keys"),
    [
        ({"admin": {"listen": "127.0.0.1:8090", "grpc": "127.0.0.1:8091"}}, ("admin.listen", "admin.grpc")),
        ({"admin": {"listen": "127.0.0.1:8092", "grpc": "localhost:8090"}}, ("admin.listen", "admin.grpc")),
        ({"listen": ":8092"}, ("listen", "admin.listen")),
        ({"listen": "0.0.0.0:8092"}, ("listen", "admin.listen")),
        ({"listen": "[::]:8092"}, ("listen", "admin.listen")),
        ({"metrics_listen": "127.0.0.1:8091"}, ("metrics_listen", "admin.listen")),
        ({"metrics_listen": ":8080"}, ("listen", "metrics_listen")),
        ({"cluster": {}, "embedded": {"directory": "/d", "listen": ":8090"}}, ("embedded.listen", "admin.listen")),
    ],
)
def test_ports_that_two_settings_have_are_rejected(more: dict[str, Any], keys: tuple[str, str]) -> None:
    with pytest.raises(ConfigError, match="overlap") as caught:
        check_workers(settings(**more))
    assert all(f"{key} (" in str(caught.value) for key in keys)
    check_workers(settings(**more, workers=1))


@pytest.mark.parametrize(
    "more",
    [
        {"admin": {"listen": "127.0.0.1:8090", "grpc": "127.0.0.1:8093"}},
        {"admin": {"listen": "127.0.0.1:8077"}},
        {"admin": {"listen": "127.0.0.1:0", "grpc": "127.0.0.1:0"}},
        {"admin": {"listen": "127.0.0.1:65533"}},
        {"listen": "127.0.0.2:8090"},
        {"listen": "[::1]:8090"},
        {"listen": "0.0.0.0:8090", "admin": {"listen": "[::1]:8090"}},
        {"listen": ":8080;127.0.0.1:8081", "metrics_listen": ":8089"},
        {"embedded": {"listen": ":8090"}},
    ],
)
def test_ports_that_no_two_settings_have_are_accepted(more: dict[str, Any]) -> None:
    check_workers(settings(**more))


@pytest.mark.parametrize("key", ["listen", "grpc"])
def test_ports_after_the_last_one_are_rejected(key: str) -> None:
    with pytest.raises(ConfigError, match=f"admin.{key}: 127.0.0.1:65534 leaves no port for the last of 3 workers"):
        check_workers(settings(admin={key: "127.0.0.1:65534"}))


def test_address_of_a_worker_counts_as_chosen_if_the_configured_one_does() -> None:
    """The port of a worker differs from the default without a choice of the operator."""
    chosen = {"listen": "127.0.0.1:8091"}
    for number in range(3):
        assert not of_worker(settings(), number).admin.chosen
        assert of_worker(settings(admin=chosen), number).admin.chosen
        assert of_worker(settings(admin=chosen), number).admin.configured == "127.0.0.1:8091"


def test_workers_of_a_cluster_differ_only_in_ports_that_cannot_be_shared() -> None:
    whole = settings(metrics_listen="127.0.0.1:9090", admin={"listen": "127.0.0.1:8090"})
    first, third = of_worker(whole, 0), of_worker(whole, 2)
    assert (first.metrics_listen, third.metrics_listen) == (None, None)
    assert (first.admin.listen, third.admin.listen) == ("127.0.0.1:8090", "127.0.0.1:8092")
    assert third.model_copy(update={"admin": whole.admin, "metrics_listen": whole.metrics_listen}) == whole
    assert of_worker(settings(admin={"listen": "off"}), 1).admin.listen == "off"


@pytest.mark.parametrize("listen", [":9876", None])
def test_first_worker_has_the_embedded_broker_and_the_others_its_socket(listen: str | None) -> None:
    whole = settings(cluster={}, embedded={"directory": "/data", "listen": listen})
    first, second = of_worker(whole, 0), of_worker(whole, 1)
    assert first.embedded.directory == Path("/data")
    assert first.cluster.namesrv == []
    assert second.embedded.directory is None
    assert second.cluster.namesrv == ["unix:/data/workers.sock"]
    # Clients have the same permissions at both.
    assert second.permitted_tools == first.permitted_tools == "all"
    # Both take part in replication.
    assert first.shared
    assert second.shared


def test_reload_gives_a_worker_its_own_settings(tmp_path: Path) -> None:
    file = tmp_path / "gantry.toml"
    file.write_text('workers = 3\nmetrics_listen = ":9090"\n[cluster]\nnamesrv = "ns:9876"\n')
    flags = {"admin": {"listen": "127.0.0.1:8090"}}
    whole = Sources(file, flags)
    for number in range(3):
        assert WorkerSources(file, flags, number).load() == of_worker(whole.load(), number)
    file.write_text('workers = 3\nlisten = ":0"\n[cluster]\nnamesrv = "ns:9876"\n')
    with pytest.raises(ConfigError, match="a different port"):
        WorkerSources(file, flags, 1).load()
