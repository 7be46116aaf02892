import pytest
from google.protobuf.duration_pb2 import Duration
from hypothesis import given
from hypothesis import strategies as st

from grpc_gateway import validation
from grpc_gateway.gateway_options import GatewayOptions
from grpc_gateway.response_status import Refused
from protos.apache.rocketmq.v2.definition_pb2 import Code
from remoting.names import SYSTEM_TOPICS
from tests.grpc_gateway.messages import resource


@pytest.mark.parametrize("name", ["orders", "%RETRY%g", "a|b_c-D9", "x" * 127])
def test_valid_topic_is_returned(name: str) -> None:
    assert validation.topic(resource(name)) == validation.topic(resource(name)) == name


@pytest.mark.parametrize(
    "name", ["", "  ", "a b", "x" * 128, "é", "a.b", *sorted(SYSTEM_TOPICS), "rmq_sys_wheel_timer"]
)
def test_invalid_topic_is_rejected(name: str) -> None:
    with pytest.raises(Refused) as refused:
        validation.topic(resource(name))
    assert refused.value.code == Code.ILLEGAL_TOPIC


@pytest.mark.parametrize("name", ["", "a b", "x" * 121, "CID_RMQ_SYS_TRANS"])
def test_invalid_group_is_rejected(name: str) -> None:
    with pytest.raises(Refused) as refused:
        validation.group(resource(name))
    assert refused.value.code == Code.ILLEGAL_CONSUMER_GROUP


def test_valid_group_is_returned() -> None:
    assert validation.group(resource("x" * 120)) == "x" * 120


@given(st.text())
def test_has_control_finds_iso_control_characters(text: str) -> None:
    assert validation.has_control(text) == any(ord(c) < 32 or 127 <= ord(c) < 160 for c in text)


@pytest.mark.parametrize(
    ("duration", "minimum", "expected"),
    [
        (Duration(seconds=10), 10, 10_000),
        (Duration(seconds=43_200), 10, 43_200_000),
        (Duration(), 0, 0),
        (Duration(nanos=1_500_000), 0, 1),
    ],
)
def test_invisible_duration_within_bounds_is_returned_in_ms(duration: Duration, minimum: float, expected: int) -> None:
    assert validation.invisible_duration(duration, minimum, GatewayOptions()) == expected


@pytest.mark.parametrize(
    ("duration", "minimum"),
    [
        (Duration(seconds=9, nanos=999_000_000), 10),
        (Duration(seconds=43_200, nanos=1_000_000), 10),
        (Duration(seconds=-1), 0),
    ],
)
def test_invisible_duration_out_of_bounds_is_rejected(duration: Duration, minimum: float) -> None:
    with pytest.raises(Refused) as refused:
        validation.invisible_duration(duration, minimum, GatewayOptions())
    assert refused.value.code == Code.ILLEGAL_INVISIBLE_TIME


@pytest.mark.parametrize("name", ["", "a b", "a%b", "x" * 65, "é"])
def test_invalid_lite_topic_is_rejected(name: str) -> None:
    with pytest.raises(Refused) as refused:
        validation.lite_topic(name, GatewayOptions())
    assert refused.value.code == Code.ILLEGAL_LITE_TOPIC
