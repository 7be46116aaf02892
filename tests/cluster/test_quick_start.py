"""The kit's quick servers start with an archive of loaded classes; without it, Java only takes longer, silently."""

import json
from pathlib import Path

import pytest

from tests.cluster.backends import Backend
from tests.cluster.servers import Cluster


@pytest.mark.backends(Backend.CLUSTER, reason="the embedded broker is not a Java program")
def test_name_server_and_broker_map_the_archive_of_classes(cluster: Cluster) -> None:
    nodes = json.loads((cluster.directory / "peers.json").read_text())["nodes"]
    for name in ("namesrv", "broker"):
        assert "/classes.jsa" in Path(f"/proc/{nodes[name]['pid']}/maps").read_text(), name
