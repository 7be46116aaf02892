import hmac
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from proxy.auth.authority import Authority, Forbidden, NotAuthenticated
from proxy.auth.resources import permissions
from proxy.backends.tool_requests import CLUSTER_TOOL_REQUESTS
from proxy.core.context import Context
from proxy.core.principal import OWN, Failure, Method
from remoting import command as commands
from remoting import properties
from remoting.broker_requests import BROKER_REQUESTS
from remoting.codes import RequestCode, ToolCode
from remoting.command import RemotingCommand
from remoting.errors import BodyError, InvalidRequest
from remoting.messages import BatchMessage, encode_batch
from remoting.permissions import NEEDS, Needs, ResourceKind
from remoting.requests import INTERNAL_REQUESTS, REQUESTS, SEND_FIELD_NAMES, RequestSpec
from remoting.signature import Credentials
from tests.proxy.auth.requests import BODIES, DATA, SERVED, ask, command
from tests.proxy.auth.users import (
    ALICE,
    BOB,
    IMPOSTOR,
    OWN_FILE,
    ROOT,
    STRANGER,
    authority,
    own_source,
    plain_authority,
    signed,
    undelayed,
)
from tests.proxy.fakes import FakeChannel, peer
from tests.proxy.messages import complete, heartbeat, request

MAKERS = {"own file": authority, "plain_acl": plain_authority}

pytestmark = pytest.mark.anyio


SENDS = [int(spec.code) for spec in SERVED if spec.send is not None]


def test_every_code_has_an_entry_and_none_is_superfluous() -> None:
    assert NEEDS.keys() == {spec.code for spec in REQUESTS.values()}
    assert all(spec.needs is None for spec in INTERNAL_REQUESTS.values())
    # Everything else names a resource.
    assert {spec.code for spec in SERVED if spec.needs == Needs()} == {RequestCode.UNREGISTER_CLIENT}


@pytest.mark.parametrize("source", MAKERS)
@pytest.mark.parametrize("code", [spec.code for spec in SERVED], ids=lambda code: RequestCode(code).name)
def test_every_code_with_every_kind_of_credential(tmp_path: Path, source: str, code: int) -> None:
    made = MAKERS[source](tmp_path)
    for credentials in (None, STRANGER, IMPOSTOR):
        with pytest.raises(NotAuthenticated, match="authentication failed"):
            ask(made, signed(command(code), credentials))
    if code == RequestCode.UNREGISTER_CLIENT:
        ask(made, signed(command(code), BOB))
    else:
        with pytest.raises(Forbidden, match="the user bob-0001 has no permission"):
            ask(made, signed(command(code), BOB))
    if REQUESTS[code].tool:
        with pytest.raises(Forbidden):
            ask(made, signed(command(code), ALICE))
    else:
        # Twice: the second decision is remembered.
        ask(made, signed(command(code), ALICE))
        ask(made, signed(command(code), ALICE))
    ask(made, signed(command(code), ROOT))


@pytest.mark.parametrize("spec", DATA, ids=lambda spec: spec.name)
def test_other_topics_and_groups_are_forbidden(tmp_path: Path, spec: Any) -> None:
    made = authority(tmp_path)
    ask(made, signed(command(spec.code), ALICE))
    body = BODIES.get(spec.code, b"")
    for good, bad in ((b'"orders"', b'"secret"'), (b'"g"', b'"other"')):
        if good in body:
            changed = command(spec.code)
            changed.body = body.replace(good, bad)
            with pytest.raises(Forbidden):
                ask(made, signed(changed, ALICE))
    for need in spec.needs.fields:
        name = "secret" if need.kind is ResourceKind.TOPIC else "other"
        for value in (name, "%RETRY%other", ""):
            if need.optional and not value:
                continue
            with pytest.raises(Forbidden):
                ask(made, signed(command(spec.code, **{need.field: value}), ALICE))


def test_blank_and_missing_names_are_forbidden(tmp_path: Path) -> None:
    made = authority(tmp_path)
    for fields in ({}, {"topic": ""}, {"topic": "  "}):
        blank = complete(REQUESTS[RequestCode.END_TRANSACTION], **fields)
        with pytest.raises(Forbidden, match="Pub on Topic:"):
            ask(made, signed(blank, ALICE))
    with pytest.raises(Forbidden):
        ask(made, signed(request(RequestCode.VIEW_MESSAGE_BY_ID, offset=0), ALICE))


def test_progress_of_a_group_needs_each_topic_that_it_is_asked_for(tmp_path: Path) -> None:
    own = f"""{OWN_FILE}
[users.oper-01]
secret = "secret-of-oper"
[[users.oper-01.policies]]
resources = ["Topic:orders", "Topic:paid", "Group:g"]
actions = ["Get"]
"""
    made = authority(tmp_path, own)
    operator = Credentials("oper-01", "secret-of-oper")
    code = RequestCode.GET_CONSUME_STATS
    for fields in ({}, {"topic": ""}, {"topic": "orders"}, {"topicList": "orders;paid;"}, {"topicList": " "}):
        ask(made, signed(command(code, consumerGroup="g", **fields), operator))
    refused = ({"topic": "secret"}, {"topicList": "orders;secret"}, {"topic": "orders", "topicList": "secret"})
    for fields in (*refused, {"topic": " orders"}, {"topicList": " orders"}):
        with pytest.raises(Forbidden, match="Get on Topic:"):
            ask(made, signed(command(code, consumerGroup="g", **fields), operator))
    with pytest.raises(Forbidden, match="Get on Group:"):
        ask(made, signed(command(code, consumerGroup="other", topic="orders"), operator))


@pytest.mark.parametrize("rows", [BROKER_REQUESTS, CLUSTER_TOOL_REQUESTS], ids=["embedded", "cluster"])
def test_requests_of_tools_need_what_their_rows_say(tmp_path: Path, rows: Mapping[int, RequestSpec]) -> None:
    made = authority(tmp_path)
    for code, spec in rows.items():
        if spec.needs is None:
            sent = signed(request(code, topic="orders"), BOB)
            channel = FakeChannel()
            channel.principal = made.of_command(sent, channel.peer)
            with pytest.raises(Forbidden):
                made(Context(channel, sent, spec, 0.0))


@pytest.mark.parametrize(
    ("source", "action", "allowed"),
    [("other", "Sub", False), ("", "Sub", False), ("h", "Pub", False), ("h", "Sub", True), ("h", "Get", True)],
)
def test_copying_the_offsets_of_a_group_needs_to_read_them(
    tmp_path: Path, source: str, action: str, allowed: bool
) -> None:
    made = authority(
        tmp_path,
        '[users.oper-01]\nsecret = "secret-of-oper"\n[[users.oper-01.policies]]\n'
        'resources = ["Topic:orders", "Group:g"]\nactions = "All"\n'
        f'[[users.oper-01.policies]]\nresources = "Group:h"\nactions = "{action}"\n',
    )
    channel, operator = FakeChannel(), Credentials("oper-01", "secret-of-oper")
    # First from a group of the sender's: the decision about these two names is not remembered for other sources.
    for named, permitted in (("g", True), (source, allowed)):
        fields = {"topic": "orders", "destGroup": "g", **({"srcGroup": named} if named else {})}
        sent = signed(request(ToolCode.CLONE_GROUP_OFFSET, **fields), operator)
        channel.principal = made.of_command(sent, channel.peer)
        context = Context(channel, sent, BROKER_REQUESTS[ToolCode.CLONE_GROUP_OFFSET], 0.0)
        if permitted:
            made(context)
        else:
            with pytest.raises(Forbidden, match=f"Sub or Get on Group:{named}"):
                made(context)


def test_bodies_without_names_are_forbidden(tmp_path: Path) -> None:
    made = authority(tmp_path)
    for code in BODIES.keys() - {RequestCode.HEART_BEAT}:
        empty = complete(REQUESTS[code])
        empty.body = b"{}"
        with pytest.raises(Forbidden):
            ask(made, signed(empty, ALICE))


def test_keys_of_bodies_are_found_as_brokers_find_them(tmp_path: Path) -> None:
    made = authority(tmp_path)
    for body in (
        b'{"Consumer-DataSet":[{"Group_Name":"other"}]}',
        b'{"consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"TOPIC":"secret"}]}]}',
        b'{"consumerDataSet":[{"groupName":"g"}],"consumerdataset":[{"groupName":"other"}]}',
    ):
        with pytest.raises(Forbidden):
            ask(made, signed(request(RequestCode.HEART_BEAT, body), ALICE))
    # Producers need no permission on their groups: sending needs one on the topic.
    ask(made, signed(heartbeat("c1", {}, ["any"]), BOB))


def test_retry_topics_of_popped_messages_need_their_topic_and_group(tmp_path: Path) -> None:
    made = authority(tmp_path)
    for separator in "_+":
        ask(made, signed(command(RequestCode.ACK_MESSAGE, topic=f"%RETRY%g{separator}orders"), ALICE))
        with pytest.raises(Forbidden, match="Topic:secret"):
            ask(made, signed(command(RequestCode.ACK_MESSAGE, topic=f"%RETRY%g{separator}secret"), ALICE))
    with pytest.raises(Forbidden):
        ask(made, signed(command(RequestCode.PULL_MESSAGE, topic="%RETRY%other"), ALICE))
    ask(made, signed(command(RequestCode.PULL_MESSAGE, topic="%RETRY%g"), ALICE))


def test_a_group_that_the_request_does_not_need_makes_no_retry_topic_a_topic(tmp_path: Path) -> None:
    made = authority(tmp_path)
    for code, field in ((RequestCode.SEND_MESSAGE, "topic"), (RequestCode.SEND_MESSAGE_V2, "b")):
        sent = command(code, consumerGroup="victim", group="victim", **{field: "%RETRY%victim_orders"})
        with pytest.raises(Forbidden):
            ask(made, signed(sent, ALICE))


def test_thread_stacks_need_more_than_running_information(tmp_path: Path) -> None:
    policy = (
        '[users.op-user]\nsecret = "secret-of-op"\n[[users.op-user.policies]]\nresources = "Group:g"\nactions = "Get"\n'
    )
    made = authority(tmp_path, policy)
    operator = Credentials("op-user", "secret-of-op")
    ask(made, signed(command(RequestCode.GET_CONSUMER_RUNNING_INFO), operator))
    with pytest.raises(Forbidden, match="Update on Group:g"):
        ask(made, signed(command(RequestCode.GET_CONSUMER_RUNNING_INFO, jstackEnable="true"), operator))


@pytest.mark.parametrize(
    ("pairs", "allowed"),
    [
        ({"UNIQ_KEY": "7F000001"}, True),
        ({"INNER_MULTI_DISPATCH": "orders"}, True),
        ({"INNER_MULTI_DISPATCH": "orders,%LMQ%payments"}, False),
        ({"TIMER_DELAY_SEC": "10"}, True),
        ({"TIMER_DELAY_SEC": "10", "TIMER_DEL_UNIQKEY": "7F000001"}, False),
        # Consumers get a retried message as one of this topic.
        ({"RETRY_TOPIC": "payments"}, False),
        ({"RETRY_TOPIC": "orders"}, True),
        # Dead letters of consumers that pop name it.
        ({"RETRY_TOPIC": "%RETRY%billing_payments"}, False),
    ],
)
@pytest.mark.parametrize("code", SENDS)
def test_properties_that_affect_other_topics_need_their_permissions(
    tmp_path: Path, code: int, pairs: dict[str, str], allowed: bool
) -> None:
    sent = command(code, **{SEND_FIELD_NAMES[code].properties: properties.encode(pairs)})
    made = authority(tmp_path)
    # A decision about the topic alone is remembered.
    ask(made, signed(command(code), ALICE))
    if allowed:
        ask(made, signed(sent, ALICE))
    else:
        with pytest.raises(Forbidden):
            ask(made, signed(sent, ALICE))
    ask(made, signed(command(code, **{SEND_FIELD_NAMES[code].properties: properties.encode(pairs)}), ROOT))


@pytest.mark.parametrize("batch", ["true", "TRUE", "false"])
@pytest.mark.parametrize(
    "forged",
    [
        {"INNER_MULTI_DISPATCH": "%LMQ%payments", "INNER_MULTI_QUEUE_OFFSET": "7"},
        {"TIMER_DEL_UNIQKEY": "7F000001", "TIMER_DELAY_SEC": "10"},
    ],
    ids=lambda forged: next(iter(forged)),
)
@pytest.mark.parametrize("code", SENDS)
def test_batches_with_messages_that_affect_other_topics_need_all_topics(
    tmp_path: Path, code: int, batch: str, forged: dict[str, str]
) -> None:
    """Brokers with multi-dispatch put a message of a batch at any offset of the queues that it names.

    They remove the delayed message with an id when they store the one of the batch again for a group that pops.
    """
    pairs, name = properties.encode(forged), next(iter(forged))
    made = authority(tmp_path)

    def batch_of(text: str) -> RemotingCommand:
        sent = command(code, **{SEND_FIELD_NAMES[code].batch: batch})
        sent.body = encode_batch([BatchMessage(0, name.encode(), ""), BatchMessage(0, b"x", text)])
        return sent

    # A decision about the topic alone is remembered.
    ask(made, signed(batch_of(""), ALICE))
    if batch == "false":
        ask(made, signed(batch_of(pairs), ALICE))
    else:
        with pytest.raises(Forbidden, match=r"Pub on Topic:\*"):
            ask(made, signed(batch_of(pairs), ALICE))
    ask(made, signed(batch_of(pairs), ROOT))


@pytest.mark.parametrize("code", SENDS)
def test_a_message_of_a_batch_names_no_other_topic_for_its_retries(tmp_path: Path, code: int) -> None:
    made = authority(tmp_path)

    def batch_of(topic: str, end: bytes = b"") -> RemotingCommand:
        sent = command(code, **{SEND_FIELD_NAMES[code].batch: "true"})
        pairs = properties.encode({"KEYS": "k", "RETRY_TOPIC": topic})
        sent.body = encode_batch([BatchMessage(0, b"x", ""), BatchMessage(0, b"RETRY_TOPIC\x01", pairs)]) + end
        return sent

    ask(made, signed(batch_of("orders"), ALICE))
    with pytest.raises(Forbidden, match="Pub or Sub on Topic:payments"):
        ask(made, signed(batch_of("payments"), ALICE))
    with pytest.raises(Forbidden, match=r"Pub on Topic:\*"):
        ask(made, signed(batch_of("orders", b"cut off"), ALICE))


def test_consumers_send_back_by_themselves_and_forward_what_they_have_received(tmp_path: Path) -> None:
    text = OWN_FILE + (
        '[users.carol-1]\nsecret = "secret-of-carol"\n[[users.carol-1.policies]]\n'
        'resources = ["Topic:payments", "Group:g"]\nactions = "Sub"\n'
        '[[users.carol-1.policies]]\nresources = "Topic:archive"\nactions = "Pub"\n'
    )
    made, carol = authority(tmp_path, text), Credentials("carol-1", "secret-of-carol")
    received = properties.encode({"RETRY_TOPIC": "payments"})
    for topic in ("%RETRY%g", "archive"):
        sent = command(RequestCode.SEND_MESSAGE_V2, b=topic, i=received)
        ask(made, signed(sent, carol))


def test_every_producer_may_ask_for_the_route_of_the_model_topic(tmp_path: Path) -> None:
    made = authority(tmp_path)
    ask(made, signed(command(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="TBW102"), BOB))
    with pytest.raises(NotAuthenticated):
        ask(made, command(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="TBW102"))


@pytest.mark.parametrize(
    "fields",
    [
        {"AccessKey": ""},
        {"AccessKey": "", "Signature": ""},
        {"AccessKey": "", "Signature": "x"},
        {"Signature": "x"},
        {"AccessKey": "alice-1"},
        {"AccessKey": "alice-1", "Signature": ""},
        {"AccessKey": "alice-1", "Signature": "é"},
        {"AccessKey": "é\uffff", "Signature": "x"},
    ],
)
def test_incomplete_signatures_are_rejected(tmp_path: Path, fields: dict[str, str]) -> None:
    with pytest.raises(NotAuthenticated):
        ask(authority(tmp_path), command(RequestCode.GET_MAX_OFFSET, **fields))


def test_responses_do_not_say_which_half_is_wrong(tmp_path: Path) -> None:
    made = authority(tmp_path)
    texts = set()
    for credentials in (None, STRANGER, IMPOSTOR):
        with pytest.raises(NotAuthenticated) as raised:
            ask(made, signed(command(RequestCode.GET_MAX_OFFSET), credentials))
        texts.add(str(raised.value))
    assert len(texts) == 1
    assert dict(made.counts) == {
        (Method.NONE, "no credential"): 1,
        (Method.SIGNATURE, "unknown user"): 1,
        (Method.SIGNATURE, "wrong secret"): 1,
    }


@pytest.mark.parametrize("credentials", [IMPOSTOR, STRANGER, Credentials("bob-0001", "not-the-secret")])
def test_a_wrong_signature_is_verified_once_whether_or_not_its_user_has_signed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, credentials: Credentials
) -> None:
    made = authority(tmp_path)
    ask(made, signed(command(RequestCode.PULL_MESSAGE), ALICE))
    compare, verified = hmac.compare_digest, []

    def counted(received: bytes, expected: bytes) -> bool:
        verified.append(received)
        return compare(received, expected)

    monkeypatch.setattr(hmac, "compare_digest", counted)
    sent = signed(command(RequestCode.PULL_MESSAGE), credentials)
    assert made.of_command(sent, peer()).failure in (Failure.WRONG_SECRET, Failure.UNKNOWN_USER)
    assert len(verified) == 1


@pytest.mark.parametrize("code", [RequestCode.AUTH_CREATE_ACL, RequestCode.AUTH_UPDATE_ACL])
def test_the_audit_log_names_the_subject_of_an_acl(
    tmp_path: Path, code: RequestCode, caplog: pytest.LogCaptureFixture
) -> None:
    made = authority(tmp_path)

    def change(body: bytes, subject: str = "User:bob") -> None:
        ask(made, signed(commands.request(code, {"subject": subject}, body), ROOT))

    for same in (b'{"subject":"User:bob"}', b'{"subject":" "}', b'{"subject":null}', b'{"policies":[]}', b""):
        change(same)
    lines = [record.getMessage() for record in caplog.records if record.name == "gantry.audit"]
    assert len(lines) == 5
    assert all("subject User:bob" in line for line in lines)
    for key in (b"subject", b"Subject", b"sub_ject"):
        with pytest.raises(InvalidRequest, match="another subject"):
            change(b'{"%b":"User:eve"}' % key)
    for body in (
        b'{"subject":"User:eve","subject":null}',
        b'{"subject":"User:bob","SUBJECT":"User:eve"}',
        b'{"subject":"User:bob "}',
        b'{"subject":{}}',
    ):
        with pytest.raises(InvalidRequest):
            change(body)
    with pytest.raises(InvalidRequest):
        change(b'{"subject":"User:eve"}', "")
    for key in (b"\\u0073ubject", b"subj ect", "s\u016fbject".encode()):
        with pytest.raises(BodyError):
            change(b'{"%b":"User:eve"}' % key)
    for body in (b"{'subject':'User:eve'}", b"[", b"[" * 100_000, b"[]", b"\xff"):
        with pytest.raises(BodyError):
            change(body)
    assert len(lines) == len([record for record in caplog.records if record.name == "gantry.audit"])


def test_anonymous_is_a_user_with_policies_of_its_own(tmp_path: Path) -> None:
    text = '[[users.anonymous.policies]]\nresources = "Topic:orders"\nactions = "Pub"\n'
    made = authority(tmp_path, text, anonymous=True)
    ask(made, command(RequestCode.SEND_MESSAGE_V2))
    with pytest.raises(Forbidden, match="the user anonymous"):
        ask(made, command(RequestCode.PULL_MESSAGE))
    # A wrong credential is not the same as none.
    with pytest.raises(NotAuthenticated):
        ask(made, signed(command(RequestCode.SEND_MESSAGE_V2), STRANGER))


def test_routes_without_a_credential_and_nothing_else(tmp_path: Path) -> None:
    made = undelayed(Authority([own_source(tmp_path)], anonymous_routes=True))
    for spec in SERVED:
        if spec.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            ask(made, command(spec.code))
        else:
            with pytest.raises(NotAuthenticated):
                ask(made, command(spec.code))
    # A wrong credential is not the same as none.
    for credentials in (STRANGER, IMPOSTOR):
        with pytest.raises(NotAuthenticated):
            ask(made, signed(command(RequestCode.GET_ROUTEINFO_BY_TOPIC), credentials))
    with pytest.raises(Forbidden):
        ask(made, signed(command(RequestCode.GET_ROUTEINFO_BY_TOPIC), BOB))


def test_own_requests_need_no_permission(tmp_path: Path) -> None:
    made = authority(tmp_path)
    channel = FakeChannel()
    assert channel.principal is OWN
    made(Context(channel, command(RequestCode.HEART_BEAT), REQUESTS[RequestCode.HEART_BEAT], 0.0))


def test_unreadable_bodies_are_errors_of_the_request() -> None:
    with pytest.raises(BodyError):
        list(permissions(REQUESTS[RequestCode.HEART_BEAT], {}, b"{"))


def test_sources_of_a_policy_are_checked_for_each_address(tmp_path: Path) -> None:
    text = (
        '[users.dora-1]\nsecret = "secret-of-dora"\n'
        '[[users.dora-1.policies]]\nresources = "*"\nactions = "All"\nsources = "10.0.0.0/8"\n'
    )
    made, dora = authority(tmp_path, text), Credentials("dora-1", "secret-of-dora")
    ask(made, signed(command(RequestCode.PULL_MESSAGE), dora), "10.0.0.1:1")
    with pytest.raises(Forbidden):
        ask(made, signed(command(RequestCode.PULL_MESSAGE), dora), "192.0.2.1:1")
