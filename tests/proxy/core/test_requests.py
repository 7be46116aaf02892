from itertools import product

import pytest

from proxy.core.handlers import HANDLERS
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from remoting.requests import REQUESTS, Direction, ReplicaChoice, RequestSpec
from tests.proxy.fakes import FakeBackend, FakeChannel, Stage, settle, stage
from tests.proxy.messages import complete, request, route

pytestmark = pytest.mark.anyio

# The request codes listed in RIP-55.
RIP_55 = {
    *(10, 310, 320, 11, 361, 14, 15, 29, 30, 31, 32, 34, 35, 36, 37, 38, 39, 41, 42, 105, 309),
    *(200050, 200051, 200053, 200052, 200054, 200055),
}
# Optional topics and groups.
OPTIONAL = {
    (RequestCode.CONSUMER_SEND_MSG_BACK, "originTopic"),
    (RequestCode.END_TRANSACTION, "topic"),
    (RequestCode.RECALL_MESSAGE, "producerGroup"),
    (RequestCode.VIEW_MESSAGE_BY_ID, "topic"),
    (RequestCode.CHECK_TRANSACTION_STATE, "topic"),
    (RequestCode.CONSUME_MESSAGE_DIRECTLY, "topic"),
    (RequestCode.NOTIFY_UNSUBSCRIBE_LITE, "consumerGroup"),
}
ODD_VALUES = ("", "x", "-1", "9" * 30, "\x01\x02", "é")
ODD_PARTS = (b"5", b"[5]", b'[{"a":1}]', b"{}")
ODD_BODIES = (
    *(b"", b"[]", b"5", b"{}", b"\xff\x00", b"\x00" * 4),
    *(b'{"%s":%s}' % pair for pair in product((b"mqSet", b"subscriptionData", b"topic"), ODD_PARTS)),
    *(b'{"clientID":"c","%s":%s}' % pair for pair in product((b"producerDataSet", b"consumerDataSet"), ODD_PARTS)),
    b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[5]}]}',
    b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{}]}]}',
    b'{"clientID":"c","consumerDataSet":[{"groupName":[],"subscriptionDataSet":[{"topic":{}}]}]}',
    b'{"clientID":["c"],"brokerName":5,"acks":5}',
)
LETTERS = {RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2}


async def attempt(on: Stage, command: RemotingCommand) -> str:
    """Return the remark of the reply or rejection. Asserts one observation and no internal error."""
    try:
        answer = await on.ask(command)
    except RemotingError as refusal:
        code, remark = int(refusal.code), str(refusal)
    else:
        code, remark = answer.code, answer.remark or ""
    await settle()
    assert [observed for _, observed in on.observed] == [code]
    assert "internal error" not in remark
    return remark


every_row = pytest.mark.parametrize("spec", REQUESTS.values(), ids=lambda spec: spec.name)
every_row_of_clients = pytest.mark.parametrize(
    "spec", [spec for spec in REQUESTS.values() if spec.direction is not Direction.BROKER], ids=lambda spec: spec.name
)
every_row_of_brokers = pytest.mark.parametrize(
    "spec", [spec for spec in REQUESTS.values() if spec.direction is Direction.BROKER], ids=lambda spec: spec.name
)


def test_table_contains_the_27_codes_of_rip_55() -> None:
    assert len(RIP_55) == 27
    assert {code for code, spec in REQUESTS.items() if spec.rip55} == RIP_55


def test_every_handler_has_a_row_in_the_table() -> None:
    assert HANDLERS.keys() <= REQUESTS.keys()


@every_row
def test_fields_of_each_row_are_plausible(spec: RequestSpec) -> None:
    assert REQUESTS[spec.code] is spec
    assert spec.broker == ("n" if spec.code in LETTERS else "bname")
    assert spec.broker not in spec.required, "old clients do not name brokers"
    for name in (spec.topic, spec.group):
        assert name is None or name in spec.required or (spec.code, name) in OPTIONAL
    assert spec.poll is None or spec.poll in spec.required
    if spec.code in LETTERS:
        assert all(len(name) == 1 for name in spec.required)


@every_row
def test_requests_that_write_messages_are_not_repeated_and_not_sent_to_slaves(spec: RequestSpec) -> None:
    if "SEND" in spec.name or spec.code == RequestCode.RECALL_MESSAGE:
        assert not spec.repeatable
        assert spec.replica is not ReplicaChoice.ANY


@every_row_of_clients
async def test_every_code_gets_exactly_one_reply(spec: RequestSpec) -> None:
    on = stage(FakeBackend(warm={"orders": route()}, names=["broker-a"]))
    answer = await on.ask(complete(spec), FakeChannel())
    await settle()
    assert (answer.code, answer.remark) == (0, None)
    assert on.observed == [(spec.name, 0)]


@every_row_of_clients
async def test_forwarded_codes_reach_the_broker_unchanged(spec: RequestSpec) -> None:
    on = stage(FakeBackend(warm={"orders": route()}, names=["broker-a"]))
    command = complete(spec, somethingNewer="1")
    before = dict(command.fields)
    await on.ask(command, FakeChannel())
    if spec.code in HANDLERS:
        return
    (sent,) = on.backend.sent
    changed = {name for name in sent.fields.keys() | before.keys() if sent.fields.get(name) != before.get(name)}
    assert changed <= {"bornTime", "properties", "i"}
    assert (sent.broker, sent.code, sent.fields["somethingNewer"]) == ("broker-a", spec.code, "1")


@every_row_of_clients
async def test_arbitrary_bodies_cause_no_internal_error(spec: RequestSpec) -> None:
    for body in ODD_BODIES:
        on = stage(FakeBackend(warm={"orders": route()}, names=["broker-a"]))
        command = complete(spec)
        command.body = body
        await attempt(on, command)


@every_row_of_clients
async def test_arbitrary_field_values_cause_no_internal_error(spec: RequestSpec) -> None:
    for name, value in product((*spec.required, spec.broker), ODD_VALUES):
        on = stage(FakeBackend(warm={"orders": route()}, names=["broker-a"]))
        await attempt(on, complete(spec, **{name: value}))


@every_row_of_clients
async def test_missing_field_is_named(spec: RequestSpec) -> None:
    for name in spec.required:
        on = stage(FakeBackend(warm={"orders": route()}, names=["broker-a"]))
        command = complete(spec)
        del command.fields[name]
        assert name in await attempt(on, command)
        assert on.observed == [(spec.name, 29)]


@every_row_of_brokers
async def test_broker_codes_are_rejected_from_clients(spec: RequestSpec) -> None:
    on = stage()
    assert await attempt(on, complete(spec)) == f"request type {int(spec.code)} not supported"
    assert on.observed == [(spec.name, 3)]


@pytest.mark.parametrize("code", [0, -1, 1, 99, 2**31 - 1, 200056])
async def test_unknown_code_is_not_supported(code: int) -> None:
    on = stage()
    assert await attempt(on, request(code)) == f"request type {code} not supported"
    assert on.observed == [("unknown", 3)]
