"""`gantry doctor` against real servers: their recognition, and the passage of a message."""

import pytest

from protocol_negotiation.peer import HostPort
from proxy.tools.doctor.findings import Level
from tests.cluster.backends import Backend
from tests.cluster.client import unique
from tests.cluster.servers import TIMEOUT, Cluster, Gantry
from tests.proxy.tools.doctor.servers import codes, only, run_doctor

pytestmark = [
    pytest.mark.backends(Backend.CLUSTER, reason="it recognises RocketMQ's own name server and broker"),
    pytest.mark.anyio,
]


async def test_doctor_recognises_gantry_and_passes_a_message(cluster: Cluster, gantry: Gantry) -> None:
    topic = unique("doctor")
    cluster.topic(topic)
    found = await run_doctor(
        HostPort.parse(gantry.address), topic=topic, group=unique("group"), write=True, timeout=TIMEOUT
    )
    assert only(found, "endpoint.found").text == "the server is Gantry"
    assert {"health.ready", "topic.usable", "topic.sent", "topic.received", "clock.agrees"} <= codes(found)
    assert [item.code for item in found if item.check == "route"] == ["route.same", "route.same"]
    assert max(item.level for item in found) <= Level.NOTE


async def test_doctor_recognises_a_name_server(cluster: Cluster) -> None:
    found = await run_doctor(HostPort.parse(cluster.namesrv), timeout=TIMEOUT)
    assert only(found, "endpoint.found").text == "the server is a name server"
    assert {"grpc.elsewhere", "route.broker", "versions.known"} <= codes(found)


async def test_doctor_recognises_a_broker(cluster: Cluster) -> None:
    found = await run_doctor(HostPort.parse(cluster.broker), timeout=TIMEOUT)
    assert only(found, "endpoint.found").text == "the server is a broker"
    assert {"grpc.elsewhere", "route.none", "versions.known"} <= codes(found)
