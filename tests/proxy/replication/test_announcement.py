from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.client_registry import ConsumerData, Member
from proxy.replication.announcement import Announcement, Kind, announce, decode, encode
from remoting.errors import BodyError
from tests.proxy.replication.announcements import PART, PROXY, STAMP, STAMPED, SUBSCRIPTION, java, java_data

# The keys of the official HeartbeatSyncerData and of its channel data.
KEYS = {
    *("heartbeatType", "clientId", "language", "version", "lastUpdateTimestamp", "subscriptionDataSet", "group"),
    *("consumeType", "messageModel", "consumeFromWhere", "localProxyId", "channelData"),
}
CHANNEL_KEYS = {"remoteProxyIp", "remoteAddress", "localAddress", "type", "extendAttribute"}
MEMBER = Member("key", "ours", None, "192.0.2.9:40000", "GO", 420)


def ours(kind: Kind = Kind.REGISTER, **changes: Any) -> Announcement:
    return announce(kind, "gantry/host%8080%8080", "g", MEMBER, ConsumerData({**PART, **changes}), 1234)


def test_decode_reads_an_announcement_of_the_official_proxy() -> None:
    announcement = decode(java())
    assert announcement == Announcement(
        Kind.REGISTER, PROXY, "g", "theirs", "192.0.2.7:50000", "JAVA", 481, ConsumerData(dict(STAMPED))
    )
    assert announcement.key == (PROXY, "theirs")
    assert not announcement.from_gantry


def test_decode_reads_an_unregistration_of_the_official_proxy() -> None:
    announcement = decode(java("UNREGISTER"))
    assert (announcement.kind, announcement.key, announcement.group, announcement.consumer_data) == (
        Kind.UNREGISTER,
        (PROXY, "theirs"),
        "g",
        ConsumerData({"lastUpdateTimestamp": STAMP}),
    )


@pytest.mark.parametrize("kind", Kind)
def test_encode_writes_the_official_format(kind: Kind) -> None:
    data = orjson.loads(encode(ours(kind)))
    channel = orjson.loads(data.pop("channelData"))
    assert data == {
        "heartbeatType": kind.value,
        "clientId": "ours",
        "language": "GO",
        "version": 420,
        "lastUpdateTimestamp": 1234,
        "group": "g",
        "localProxyId": "gantry/host%8080%8080",
        **PART,
    }
    assert data.keys() | {"channelData"} == KEYS
    assert orjson.loads(channel.pop("extendAttribute")) == [SUBSCRIPTION]
    assert channel == {
        "remoteProxyIp": "gantry/host",
        "remoteAddress": "192.0.2.9:40000",
        "localAddress": "gantry/host%8080%8080",
        "type": "REMOTING",
    }
    assert channel.keys() | {"extendAttribute"} == CHANNEL_KEYS


def test_decode_reverses_encode() -> None:
    announcement = decode(encode(ours()))
    assert announcement == Announcement(
        Kind.REGISTER, "gantry/host%8080%8080", "g", "ours", "192.0.2.9:40000", "GO", 420, ours().consumer_data
    )
    assert announcement.from_gantry


def test_unregistration_names_the_same_channel_as_the_registration() -> None:
    """The official proxy identifies a member by these three keys and the type."""
    channels = [orjson.loads(orjson.loads(encode(ours(kind)))["channelData"]) for kind in Kind]
    for name in ("remoteProxyIp", "remoteAddress", "localAddress", "type"):
        assert len({channel[name] for channel in channels}) == 1


@pytest.mark.parametrize("nothing", [None, []])
def test_heartbeat_without_subscriptions_is_announced_without_them(nothing: object) -> None:
    data = orjson.loads(encode(ours(subscriptionDataSet=nothing)))
    assert data["subscriptionDataSet"] == []
    assert orjson.loads(data["channelData"])["extendAttribute"] == "[]"


def test_encode_rejects_deeply_nested_consumer_data() -> None:
    deep: list[Any] = []
    for _ in range(300):
        deep = [deep]
    for place in ({"consumeType": deep}, {"subscriptionDataSet": [{"topic": deep}]}):
        with pytest.raises(BodyError, match="client ours cannot be announced"):
            encode(ours(**place))


@pytest.mark.parametrize(
    ("changes", "address"),
    [
        ({"channelData": None}, ""),
        ({"channelData": ""}, ""),
        ({"channelData": 5}, ""),
        ({"channelData": "{}"}, ""),
        ({"channelData": '{"remoteAddress":"/192.0.2.7:50000"}'}, "192.0.2.7:50000"),
    ],
)
def test_decode_accepts_an_announcement_without_channel_data(changes: dict[str, Any], address: str) -> None:
    assert decode(java(**changes)).address == address


NO_TEXTS: tuple[object, ...] = (5, [], {})
WRONG: dict[str, tuple[object, ...]] = {
    "heartbeatType": ("", "GONE", 5, None, []),
    "localProxyId": ("", 5, None, {}),
    "group": ("", 5, None, {}),
    "clientId": ("", 5, None, {}),
    "version": ("x", [1], {"a": 1}),
    "subscriptionDataSet": (
        *("x", 5, {}, {"topic": "orders"}, ["x"], [SUBSCRIPTION, None]),
        *([{**SUBSCRIPTION, key: value}] for key in ("topic", "subString") for value in NO_TEXTS),
    ),
    "channelData": ("x", "[]", "5"),
}


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"[]", b"5", b"{", b"{}", b"\xff\x00", b'"text"'),
        *(
            orjson.dumps({key: value for key, value in java_data().items() if key != missing})
            for missing in ("heartbeatType", "localProxyId", "group", "clientId")
        ),
        *(java(**{key: value}) for key, wrong in WRONG.items() for value in wrong),
    ],
)
def test_decode_rejects_invalid_announcements(body: bytes) -> None:
    with pytest.raises(BodyError):
        decode(body)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(changes=st.dictionaries(st.sampled_from(sorted(KEYS)), values, max_size=4), kind=st.sampled_from(Kind))
def test_decode_of_arbitrary_bytes_returns_or_raises_body_error(changes: dict[str, Any], kind: Kind) -> None:
    try:
        announcement = decode(java(kind, **changes))
    except BodyError:
        return
    again = decode(encode(announcement))
    assert (again.kind, again.key) == (announcement.kind, announcement.key)
    assert (again.group, again.address) == (announcement.group, announcement.address)
