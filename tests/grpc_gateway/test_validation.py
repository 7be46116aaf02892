import pytest
from google.protobuf.duration_pb2 import Duration
from hypothesis import given
from hypothesis import strategies as st

from grpc_gateway import validation
from grpc_gateway.gateway_options import GatewayOptions
from grpc_gateway.response_status import Refused
from protos.apache.rocketmq.v2.definition_pb2 import Code
from remoting.names import SYSTEM_TOPICS
from tests.grpc_gateway.kit import resource


@pytest.mark.parametrize("name", ["orders", "%RETRY%g", "a|b_c-D9", "x" * 127])
def test_topics(name: str) -> None:
    assert validation.topic(resource(name)) == validation.topic(resource(name)) == name


@pytest.mark.parametrize(
    "name", ["", "  ", "a b", "x" * 128, "é", "a.b", *sorted(SYSTEM_TOPICS), "rmq_sys_wheel_timer"]
)
def test_names_that_are_no_topics(name: str) -> None:
    with pytest.raises(Refused) as refused:
        validation.topic(resource(name))
    assert refused.value.code == Code.ILLEGAL_TOPIC


@pytest.mark.parametrize("name", ["", "a b", "x" * 121, "CID_RMQ_SYS_TRANS"])
def test_names_that_are_no_groups(name: str) -> None:
    with pytest.raises(Refused) as refused:
        validation.group(resource(name))
    assert refused.value.code == Code.ILLEGAL_CONSUMER_GROUP


def test_groups() -> None:
    assert validation.group(resource("x" * 120)) == "x" * 120


@given(st.text())
def test_control_characters(text: str) -> None:
    assert validation.has_control(text) == any(ord(c) < 32 or 127 <= ord(c) < 160 for c in text)


@pytest.mark.parametrize(
    ("duration", "least", "expected"),
    [
        (Duration(seconds=10), 10, 10_000),
        (Duration(seconds=43_200), 10, 43_200_000),
        (Duration(), 0, 0),
        (Duration(nanos=1_500_000), 0, 1),
    ],
)
def test_invisible_durations(duration: Duration, least: float, expected: int) -> None:
    assert validation.invisible_duration(duration, least, GatewayOptions()) == expected


@pytest.mark.parametrize(
    ("duration", "least"),
    [
        (Duration(seconds=9, nanos=999_000_000), 10),
        (Duration(seconds=43_200, nanos=1_000_000), 10),
        (Duration(seconds=-1), 0),
    ],
)
def test_durations_out_of_bounds(duration: Duration, least: float) -> None:
    with pytest.raises(Refused) as refused:
        validation.invisible_duration(duration, least, GatewayOptions())
    assert refused.value.code == Code.ILLEGAL_INVISIBLE_TIME


@pytest.mark.parametrize("name", ["", "a b", "a%b", "x" * 65, "é"])
def test_names_that_are_no_lite_topics(name: str) -> None:
    with pytest.raises(Refused) as refused:
        validation.lite_topic(name, GatewayOptions())
    assert refused.value.code == Code.ILLEGAL_LITE_TOPIC
