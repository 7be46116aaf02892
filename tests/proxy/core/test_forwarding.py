import base64

import pytest

from protocol_negotiation.advertised_address import Advertise
from proxy.core.advertised_listeners import AdvertisedListener, ListenerRoutes
from proxy.settings.model import Settings
from remoting import properties
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.errors import BodyError, BrokerNotNamed, InvalidRequest, RemotingError, ServiceUnavailable
from remoting.requests import REQUESTS
from tests.proxy.fakes import FakeBackend, FakeChannel, peer, settle, stage
from tests.proxy.messages import complete, heartbeat, request, route

pytestmark = pytest.mark.anyio

EXTRA = "0 1700000000000 60000 0 0 broker-x 1 0"
HANDLE = base64.urlsafe_b64encode(b"v1 orders broker-x 1700000000000 ABC").decode()
BATCH = b'{"brokerName":"broker-x","acks":[]}'


def nameless(code: int, **more: str) -> RemotingCommand:
    """Return a request without a broker name, as Java clients before 4.9.5 send it."""
    command = complete(REQUESTS[code], **more)
    del command.fields[REQUESTS[code].broker]
    return command


def with_body(command: RemotingCommand, body: bytes) -> RemotingCommand:
    command.body = body
    return command


def dedicated(broker: str) -> FakeChannel:
    return FakeChannel(peer(listener=broker, broker=broker))


def book(*own: str) -> ListenerRoutes:
    dedicated = [
        AdvertisedListener(8080 + number, Advertise(), broker, f"for {broker}") for number, broker in enumerate(own, 1)
    ]
    return ListenerRoutes([AdvertisedListener(8080, Advertise(), None, "main"), *dedicated])


@pytest.mark.parametrize(
    ("command", "channel", "broker"),
    [
        (complete(REQUESTS[11], bname="broker-x"), FakeChannel(), "broker-x"),
        (complete(REQUESTS[10], bname="broker-x"), FakeChannel(), "broker-x"),
        (complete(REQUESTS[310], n="broker-x"), FakeChannel(), "broker-x"),
        (complete(REQUESTS[320], n="broker-x"), FakeChannel(), "broker-x"),
        # The broker named in the request takes precedence over the listener's.
        (complete(REQUESTS[11], bname="broker-x"), dedicated("broker-y"), "broker-x"),
        (nameless(11), dedicated("broker-x"), "broker-x"),
        (nameless(310), dedicated("broker-x"), "broker-x"),
        # An empty name counts as missing.
        (complete(REQUESTS[11], bname=""), dedicated("broker-x"), "broker-x"),
        (nameless(200051, extraInfo=EXTRA), FakeChannel(), "broker-x"),
        (nameless(200053, extraInfo=EXTRA), FakeChannel(), "broker-x"),
        (nameless(370, recallHandle=HANDLE), FakeChannel(), "broker-x"),
        (with_body(nameless(200151), BATCH), FakeChannel(), "broker-x"),
        # The topic is on one broker only.
        (nameless(11), FakeChannel(), "broker-a"),
        (nameless(310), FakeChannel(), "broker-a"),
    ],
)
async def test_forward_sends_to_the_named_or_implied_broker(
    command: RemotingCommand, channel: FakeChannel, broker: str
) -> None:
    on = stage(FakeBackend(warm={"orders": route("orders", "broker-a")}))
    await on.ask(command, channel)
    assert [sent.broker for sent in on.backend.sent] == [broker]


@pytest.mark.parametrize(
    ("fields", "body"),
    [
        ({}, b""),
        ({"Signature": "", "AccessKey": ""}, b""),
        ({"Signature": "s", "AccessKey": "a"}, b"x" * 60_000),
    ],
)
async def test_the_body_of_a_poll_is_not_sent_unless_it_is_signed(fields: dict[str, str], body: bytes) -> None:
    on = stage()
    await on.ask(with_body(complete(REQUESTS[11], bname="broker-a", **fields), b"x" * 60_000))
    assert [sent.body for sent in on.backend.sent] == [body]


async def test_forward_loads_a_missing_route() -> None:
    on = stage(FakeBackend(cold={"orders": route("orders", "broker-a")}))
    assert (await on.ask(nameless(11))).fields["served by"] == "broker-a"
    await settle()
    assert on.observed == [("PULL_MESSAGE", 0)]


async def test_forward_loads_a_missing_route_for_a_oneway_request() -> None:
    on = stage(FakeBackend(cold={"orders": route("orders", "broker-a")}))
    command = request(15, b"", True, **nameless(15).fields)
    reply = on.core.handle(FakeChannel(), command)
    assert reply is not None
    await reply
    assert [(sent.broker, sent.timeout) for sent in on.backend.sent] == [("broker-a", None)]


async def test_send_to_an_unknown_topic_goes_to_the_only_broker() -> None:
    on = stage(FakeBackend(names=["broker-a"]))
    await on.ask(nameless(310, b="new"))
    assert [sent.broker for sent in on.backend.sent] == ["broker-a"]


@pytest.mark.parametrize(
    "backend",
    [
        FakeBackend(warm={"orders": route("orders", "broker-b", "broker-a")}),
        FakeBackend(cold={"orders": route("orders", "broker-b", "broker-a")}),
        FakeBackend(names=["broker-b", "broker-a"]),
    ],
    ids=["warm", "cold", "unknown topic"],
)
async def test_missing_broker_name_is_rejected_with_a_remedy(backend: FakeBackend) -> None:
    on = stage(backend)
    with pytest.raises(BrokerNotNamed) as caught:
        await on.ask(nameless(11))
    text = str(caught.value)
    for part in ("PULL_MESSAGE", "orders", "broker-a, broker-b", "4.9.5", "listen.broker"):
        assert part in text
    await settle()
    assert on.observed == [("PULL_MESSAGE", 15)]


async def test_shared_listener_implies_the_only_broker_without_a_dedicated_one() -> None:
    on = stage(FakeBackend(warm={"orders": route("orders", "broker-a", "broker-b")}), addresses=book("broker-a"))
    await on.ask(nameless(11))
    assert [sent.broker for sent in on.backend.sent] == ["broker-b"]


@pytest.mark.parametrize("backend", [FakeBackend(), FakeBackend(cold={"orders": ServiceUnavailable("no name server")})])
async def test_forward_without_a_name_server_is_unavailable(backend: FakeBackend) -> None:
    with pytest.raises(ServiceUnavailable):
        await stage(backend).ask(nameless(11))


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (nameless(200051, extraInfo="nonsense"), BodyError),
        (nameless(370, recallHandle="nonsense"), BodyError),
        (with_body(nameless(200151), b"nonsense"), BodyError),
        (complete(REQUESTS[11], suspendTimeoutMillis="soon"), InvalidRequest),
        (complete(REQUESTS[11], suspendTimeoutMillis="9" * 20), InvalidRequest),
    ],
)
async def test_undecodable_handle_is_an_invalid_parameter(command: RemotingCommand, error: type[RemotingError]) -> None:
    with pytest.raises(error) as caught:
        await stage().ask(command)
    assert caught.value.code == 29


@pytest.mark.parametrize(
    ("command", "timeout"),
    [
        (complete(REQUESTS[30]), 10),
        (complete(REQUESTS[11], suspendTimeoutMillis="15000"), 25),
        (complete(REQUESTS[361], suspendTimeoutMillis="30000"), 40),
        (complete(REQUESTS[200050], pollTime="20000"), 30),
        (complete(REQUESTS[200054], pollTime="20000"), 30),
        (complete(REQUESTS[11], suspendTimeoutMillis="-5"), 10),
        (complete(REQUESTS[11], suspendTimeoutMillis="9" * 18), 130),
    ],
)
async def test_timeout_of_a_poll_includes_its_requested_duration(command: RemotingCommand, timeout: float) -> None:
    on = stage()
    await on.ask(command)
    assert [sent.timeout for sent in on.backend.sent] == [timeout]


@pytest.mark.parametrize("code", [200050, 200054])
@pytest.mark.parametrize("born", [{}, {"bornTime": "1700000000000"}])
async def test_forward_sets_born_time_of_polls_to_zero(code: int, born: dict[str, str]) -> None:
    on = stage()
    await on.ask(complete(REQUESTS[code], **born))
    assert on.backend.sent[0].fields["bornTime"] == "0"


@pytest.mark.parametrize("code", [200050, 200054])
async def test_signed_poll_keeps_its_born_time(code: int) -> None:
    on = stage()
    command = complete(REQUESTS[code], bornTime="1700000000000", AccessKey="k", Signature="s")
    fields = dict(command.fields)
    await on.ask(command)
    assert on.backend.sent[0].fields == fields


@pytest.mark.parametrize(("code", "name"), [(10, "properties"), (310, "i")])
@pytest.mark.parametrize(("length", "told"), [(29_999, True), (30_000, False), (32_767, False)])
async def test_born_host_is_not_added_to_long_properties(code: int, name: str, length: int, told: bool) -> None:
    """Brokers reject properties over 32,767 bytes."""
    on = stage()
    known = "K\x01" + "v" * (length - 3) + "\x02"
    await on.ask(complete(REQUESTS[code], **{name: known}))
    text = on.backend.sent[0].fields[name]
    assert ("__BORNHOST" in text, text == known) == (told, not told)
    assert len(text) <= 32_767


@pytest.mark.parametrize(("code", "name"), [(10, "properties"), (310, "i")])
@pytest.mark.parametrize("known", [None, "", "TAGS\x01a\x02", "TAGS\x01a"])
async def test_born_host_is_added_to_the_properties(code: int, name: str, known: str | None) -> None:
    on = stage()
    await on.ask(complete(REQUESTS[code], **({} if known is None else {name: known})))
    text = on.backend.sent[0].fields[name]
    assert properties.decode(text) == {**properties.decode(known or ""), "__BORNHOST": "192.0.2.7:50000"}


async def test_born_host_is_added_beside_the_empty_signature_of_a_cpp_client() -> None:
    on = stage()
    await on.ask(complete(REQUESTS[310], i="TAGS\x01a\x02", AccessKey="", Signature=""))
    assert properties.decode(on.backend.sent[0].fields["i"]) == {"TAGS": "a", "__BORNHOST": "192.0.2.7:50000"}


@pytest.mark.parametrize(
    ("fields", "settings"),
    [
        ({"i": "__BORNHOST\x01192.0.2.7:50000\x02"}, None),
        ({"i": "TAGS\x01a\x02", "Signature": "s"}, None),
        ({"i": "TAGS\x01a\x02"}, Settings(born_host=False)),
    ],
    ids=["it is there already", "the request is signed", "it is not wanted"],
)
async def test_born_host_is_not_added_if_disabled_signed_or_present(
    fields: dict[str, str], settings: Settings | None
) -> None:
    on = stage(settings=settings)
    await on.ask(complete(REQUESTS[310], **fields))
    assert on.backend.sent[0].fields["i"] == fields["i"]


async def test_born_host_is_not_added_to_batches_and_other_requests() -> None:
    on = stage()
    await on.ask(complete(REQUESTS[320]))
    await on.ask(complete(REQUESTS[36]))
    assert not any({"i", "properties"} & sent.fields.keys() for sent in on.backend.sent)


async def test_send_to_another_broker_registers_the_client_there() -> None:
    on = stage(FakeBackend(warm={"orders": route("orders", "broker-a")}))
    client = FakeChannel()
    await on.ask(heartbeat(consumers={"g": ["orders"]}), client)
    await on.ask(complete(REQUESTS[11], bname="broker-b"), client)
    await on.ask(complete(REQUESTS[11], bname="broker-b"), client)
    await settle()
    assert [brokers for _, _, brokers in on.backend.registered] == [{"broker-a"}, {"broker-b"}]


async def test_client_is_not_registered_before_its_first_heartbeat() -> None:
    on = stage(FakeBackend(warm={"orders": route("orders", "broker-a")}))
    client = FakeChannel()
    await on.ask(request(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="orders"), client)
    await on.ask(complete(REQUESTS[310], n="broker-b"), client)
    await settle()
    assert on.backend.registered == []
    await on.ask(heartbeat(producers=["p"]), client)
    assert [brokers for _, _, brokers in on.backend.registered] == [{"broker-a", "broker-b"}]
