from tests.proxy.settings.conftest import Load


def test_replicas_share_state_only_on_a_broker_that_all_can_reach(loaded: Load) -> None:
    assert loaded("cluster.namesrv = 'a:1'").shared
    assert not loaded("cluster.namesrv = 'a:1'\nsync.enabled = false").shared
    assert not loaded("embedded.directory = '/d'").shared
    assert loaded("embedded.directory = '/d'\nembedded.listen = ':9876'").shared
    assert loaded("workers = 2\nembedded.directory = '/d'").shared
