from typing import Any

import orjson
import pytest

from remoting import command as commands
from remoting.command import RemotingCommand
from remoting.errors import BodyError, RemotingError, ServiceUnavailable
from tests.proxy.core.handlers.locks import LOCK, QUEUES, UNLOCK, ask, grants, queue
from tests.proxy.fakes import FakeBackend, stage
from tests.proxy.messages import request

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("code", [LOCK, UNLOCK])
async def test_locks_are_requested_from_the_brokers_of_the_queues(code: int) -> None:
    on = stage(grants())
    await on.ask(ask(code))
    assert [(sent.broker, sent.fields, orjson.loads(sent.body)) for sent in on.backend.sent] == [
        (
            broker,
            {"ns": "x", "bname": broker},
            {"consumerGroup": "g", "clientId": "c1", "onlyThisBroker": False, "mqSet": queues},
        )
        for broker, queues in (("broker-a", [QUEUES[0], QUEUES[2]]), ("broker-b", [QUEUES[1]]))
    ]


@pytest.mark.parametrize("code", [LOCK, UNLOCK])
async def test_request_for_queues_of_one_broker_is_forwarded_unchanged(code: int) -> None:
    """It may be signed, and the signature covers fields and body."""
    body = b'{ "consumerGroup" : "g", "mqSet" : [{"queueId":0,"brokerName":"broker-b","topic":"orders"}] }'
    command = request(code, body, AccessKey="k", Signature="s", bname="broker-x")
    fields = dict(command.fields)
    on = stage(grants())
    await on.ask(command)
    assert [(sent.broker, sent.fields, sent.body) for sent in on.backend.sent] == [("broker-b", fields, body)]


@pytest.mark.parametrize("queues", [QUEUES[:1], QUEUES], ids=["one broker", "two brokers"])
async def test_oneway_request_is_sent_to_brokers_as_a_request_with_response(queues: Any) -> None:
    """Orderly consumers unlock by oneway requests; without a response, the proxy's request would time out."""
    asked: list[RemotingCommand] = []

    def answer(_: str, command: RemotingCommand) -> RemotingCommand:
        asked.append(command)
        return commands.success()

    await stage(FakeBackend(answer=answer)).ask(ask(UNLOCK, queues, True))
    assert asked
    assert not any(command.is_oneway or command.header["flag"] for command in asked)


@pytest.mark.parametrize(
    ("backend", "granted"),
    [
        (grants(), [QUEUES[0], QUEUES[2], QUEUES[1]]),
        (grants("broker-a"), [QUEUES[1]]),
        (grants(refusing="broker-b"), [QUEUES[0], QUEUES[2]]),
        (FakeBackend(answer=lambda *_: commands.success(body=b'{"lockOKMQSet":null}')), []),
    ],
)
async def test_granted_locks_of_all_brokers_are_merged(backend: FakeBackend, granted: list[Any]) -> None:
    answer = await stage(backend).ask(ask(LOCK))
    assert (answer.code, orjson.loads(answer.body)) == (0, {"lockOKMQSet": granted})


@pytest.mark.parametrize("backend", [grants("broker-a", "broker-b"), grants("broker-b", refusing="broker-a")])
async def test_lock_fails_if_every_broker_fails(backend: FakeBackend) -> None:
    with pytest.raises(RemotingError):
        await stage(backend).ask(ask(LOCK))


async def test_unlock_reports_the_failure_of_any_broker() -> None:
    with pytest.raises(ServiceUnavailable):
        await stage(grants("broker-b")).ask(ask(UNLOCK))
    answer = await stage(grants(refusing="broker-b")).ask(ask(UNLOCK))
    assert (answer.code, answer.remark) == (1, "no")


@pytest.mark.parametrize(("code", "body"), [(LOCK, {"lockOKMQSet": []}), (UNLOCK, None)])
async def test_request_without_queues_is_answered_without_brokers(code: int, body: Any) -> None:
    on = stage(grants())
    answer = await on.ask(ask(code, []))
    assert (answer.code, orjson.loads(answer.body or b"null"), on.backend.sent) == (0, body, [])


@pytest.mark.parametrize("code", [LOCK, UNLOCK])
@pytest.mark.parametrize(
    "queues", [5, [5], [{}], [{"brokerName": ""}], [QUEUES[0], {"topic": "t"}], {"brokerName": "a"}]
)
async def test_queue_without_a_broker_is_rejected_before_any_lock(code: int, queues: Any) -> None:
    on = stage(grants())
    with pytest.raises(BodyError):
        await on.ask(ask(code, queues))
    assert on.backend.sent == []


async def test_parts_repeat_only_the_fields_of_a_lock_request() -> None:
    on = stage(grants())
    padded = [{**queue("broker-a", 0), "padding": "x" * 1000}, queue("broker-b", 0)]
    body = {"consumerGroup": "g", "clientId": "c1", "mqSet": padded, "padding": "x" * 1000}
    await on.ask(request(LOCK, orjson.dumps(body)))
    assert [orjson.loads(sent.body) for sent in on.backend.sent] == [
        {"consumerGroup": "g", "clientId": "c1", "mqSet": [queue(broker, 0)]} for broker in ("broker-a", "broker-b")
    ]


@pytest.mark.parametrize(
    ("queues", "text"),
    [
        ([queue("broker-a", number) for number in range(10_001)], "10001 queues; at most 10000"),
        ([queue(f"broker-{number}", 0) for number in range(257)], "257 brokers; at most 256"),
    ],
)
async def test_lock_request_over_a_limit_is_rejected(queues: list[dict[str, Any]], text: str) -> None:
    on = stage(grants())
    with pytest.raises(BodyError, match=text):
        await on.ask(ask(LOCK, queues))
    assert on.backend.sent == []
