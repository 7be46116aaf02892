"""Routes, assignments, memberships and telemetry through the port of a replica."""

from pathlib import Path

import anyio.to_thread
import pytest

from grpc_gateway.message_decoding import offset_message_id
from protos.apache.rocketmq.v2 import definition_pb2 as d
from protos.apache.rocketmq.v2 import service_pb2 as pb
from protos.apache.rocketmq.v2.definition_pb2 import Code
from remoting.codes import RequestCode
from tests.cluster.backends import Backend
from tests.cluster.client import BROKER, Client, create_topic, json, lists, unique, wait_until
from tests.cluster.coverage import covers
from tests.cluster.grpc.consumer import Consumer
from tests.cluster.grpc.replica import Product, Service
from tests.cluster.grpc.telemetry import Telemetry
from tests.cluster.servers import Cluster, Gantry, eventually
from tests.proxy.observability.records.samples import read

pytestmark = [
    pytest.mark.backends(Backend.CLUSTER, Backend.IN_PROCESS, reason="the embedded broker is tested over its port too"),
    pytest.mark.anyio,
    pytest.mark.timeout(180, func_only=True),
]


@covers("QueryRoute", "QueryAssignment")
async def test_route_and_assignment_have_the_queues_of_the_topic_at_the_replicas_address(
    cluster: Cluster, service: Service
) -> None:
    topic = await create_topic(cluster.broker, "grpc", queues=3)
    host, _, port = service.address.rpartition(":")
    endpoints = d.Endpoints(scheme=d.IPv4, addresses=[d.Address(host=host, port=int(port))])
    async with Consumer(service.address, unique("group"), topic) as client:
        found = await client.call("QueryRoute", pb.QueryRouteRequest(topic=client.topic, endpoints=endpoints))
        assert found.status.code == Code.OK
        assert {(queue.id, queue.broker.name) for queue in found.message_queues} == {(n, BROKER) for n in range(3)}
        assert all(queue.broker.endpoints == endpoints for queue in found.message_queues)
        request = pb.QueryAssignmentRequest(topic=client.topic, group=client.group, endpoints=endpoints)
        answer = await client.call("QueryAssignment", request)
        assert answer.status.code == Code.OK
        assert {entry.message_queue.broker.name for entry in answer.assignments} == {BROKER}
        client.topic.name = unique("unknown")
        found = await client.call("QueryRoute", pb.QueryRouteRequest(topic=client.topic, endpoints=endpoints))
        assert found.status.code == Code.TOPIC_NOT_FOUND


@covers("Telemetry", "Telemetry.settings", "Heartbeat", "NotifyClientTermination")
async def test_consumer_is_a_member_at_the_broker_from_its_heartbeat_to_its_termination(
    cluster: Cluster, consumer: Consumer
) -> None:
    client_id, group = consumer.metadata[0][1], consumer.group.name
    async with Telemetry(consumer) as telemetry, Client(cluster.broker) as direct:
        effective = await telemetry.wait("settings")
        assert effective.subscription.receive_batch_size == 32
        assert effective.backoff_policy.max_attempts > 0
        request = pb.HeartbeatRequest(group=consumer.group, client_type=d.PUSH_CONSUMER)
        assert (await consumer.call("Heartbeat", request)).status.code == Code.OK
        await wait_until(lists(direct, group, client_id), "the membership")
        gone = pb.NotifyClientTerminationRequest(group=consumer.group)
        assert (await consumer.call("NotifyClientTermination", gone)).status.code == Code.OK
        await wait_until(lists(direct, group), "the end of the membership")


@covers(
    "Telemetry.print_thread_stack_trace_command",
    "Telemetry.thread_stack_trace",
    "Telemetry.verify_message_command",
    "Telemetry.verify_message_result",
)
async def test_tools_reach_a_client_by_way_of_the_broker(cluster: Cluster, consumer: Consumer) -> None:
    """As `mqadmin consumerStatus -s` and `mqadmin queryMsgById -g … -d …` do."""
    verified: list[bytes] = []

    def trace(command: pb.PrintThreadStackTraceCommand) -> pb.TelemetryCommand:
        found = pb.ThreadStackTrace(nonce=command.nonce, thread_stack_trace="at main")
        return pb.TelemetryCommand(status=d.Status(code=Code.OK), thread_stack_trace=found)

    def verify(command: pb.VerifyMessageCommand) -> pb.TelemetryCommand:
        verified.append(command.message.body)
        result = pb.VerifyMessageResult(nonce=command.nonce)
        return pb.TelemetryCommand(status=d.Status(code=Code.OK), verify_message_result=result)

    client_id, group = consumer.metadata[0][1], consumer.group.name
    async with Telemetry(consumer) as telemetry, Client(cluster.broker) as direct:
        telemetry.answers = {"print_thread_stack_trace_command": trace, "verify_message_command": verify}
        request = pb.HeartbeatRequest(group=consumer.group, client_type=d.PUSH_CONSUMER)
        await consumer.call("Heartbeat", request)
        await wait_until(lists(direct, group, client_id), "the membership")
        whom = {"consumerGroup": group, "clientId": client_id}
        reply = await direct.get(RequestCode.GET_CONSUMER_RUNNING_INFO, {**whom, "jstackEnable": True})
        assert json(reply)["jstack"] == "at main"
        await consumer.send(b"again")
        await consumer.wait_until_stored(1)
        [message] = await direct.pull(consumer.topic.name, unique("reader"))
        where = {**whom, "msgId": offset_message_id(message), "brokerName": BROKER, "topic": consumer.topic.name}
        result = await direct.get(RequestCode.CONSUME_MESSAGE_DIRECTLY, where)
        assert json(result)["consumeResult"] == "CR_SUCCESS"
        assert verified == [b"again"]


@covers("Telemetry.reconnect_endpoints_command")
@pytest.mark.backends(Backend.CLUSTER, Backend.SOCKET, reason="a replica of its own is shut down")
async def test_draining_replica_asks_clients_to_reconnect(cluster: Cluster, transport: str, tmp_path: Path) -> None:
    product = Product(tmp_path, transport)
    topic = await create_topic(cluster.broker, "grpc")
    with Gantry(tmp_path, cluster.namesrv, product.config) as gantry:
        async with (
            Consumer(gantry.address, unique("group"), topic) as client,
            Telemetry(client) as telemetry,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(anyio.to_thread.run_sync, gantry.stop)
            assert (await telemetry.wait("reconnect_endpoints_command")).nonce
            await eventually(lambda: telemetry.ended, "the end of the stream")


async def test_rules_metrics_and_records_see_the_calls(cluster: Cluster, service: Service) -> None:
    product = service.product
    topic, denied = await create_topic(cluster.broker, "grpc"), await create_topic(cluster.broker, "denied")
    before = await product.metric("gantry_requests_total", protocol="grpc", topic=topic)
    refused = await product.metric("gantry_rule_enforced_total", rule="no-entry")
    async with Consumer(service.address, unique("group"), topic) as client:
        await client.send(b"0", b"1")
        client.topic.name = denied
        message = d.Message(
            topic=client.topic, body=b"2", system_properties=d.SystemProperties(message_id=unique("01"))
        )
        response = await client.call("SendMessage", pb.SendMessageRequest(messages=[message]))
        assert response.status.code == Code.FORBIDDEN
    assert await product.metric("gantry_requests_total", protocol="grpc", topic=topic) == before + 2
    assert await product.metric("gantry_rule_enforced_total", rule="no-entry") == refused + 1

    async def recorded() -> bool:
        rows = await anyio.to_thread.run_sync(read, product.records, "requests")
        return [row["response"] for row in rows if row["topic"] in (topic, denied)] == _RESPONSES

    await wait_until(recorded, "the traffic records")


_RESPONSES = [Code.OK, Code.OK, Code.FORBIDDEN]
