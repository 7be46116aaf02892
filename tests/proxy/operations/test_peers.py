"""Other replicas, without a network."""

from proxy.operations.peers import Peers
from proxy.settings.model import Settings
from proxy.workers.worker_settings import of_worker


def test_all_workers_of_a_replica_have_the_same_instance() -> None:
    """A worker recognizes the configured address as that of its own replica."""
    settings = Settings(listen="127.0.0.1:8080", cluster={"namesrv": "ns:9876"}, workers=3)
    instances = {Peers(of_worker(settings, number).admin, "a").instance for number in range(3)}
    assert instances == {Peers(settings.admin, "a").instance}
    other = Settings(listen="127.0.0.1:8080", cluster={"namesrv": "ns:9876"}, admin={"listen": "127.0.0.1:8091"})
    assert Peers(other.admin, "a").instance not in instances
