"""Client ids in the requests of lite topics, by which alone brokers choose messages and subscriptions."""

import pytest

from proxy.core.handlers.lite import id_at_brokers, restore_id
from proxy.core.principal import Method, Principal
from proxy.core.signing import Signer, SigningPolicy
from proxy.settings.model import Settings
from remoting import lite_subscription
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.errors import InvalidRequest, NotPermitted
from remoting.fastjson import load_object
from remoting.requests import REQUESTS
from remoting.signature import Credentials, sign
from tests.proxy.fakes import FakeChannel, Stage, stage
from tests.proxy.messages import complete, heartbeat, request

pytestmark = pytest.mark.anyio

POP, CONTROL = RequestCode.POP_LITE_MESSAGE, RequestCode.LITE_SUBSCRIPTION_CTL
AUTHENTICATED = Settings(auth={"brokers": True, "anonymous": "allow"}, cluster={"namesrv": ["127.0.0.1:9876"]})
ALICE, BOB = (Principal(name, Method.SIGNATURE) for name in ("alice", "bob"))


def asked(code: RequestCode, client_id: str = "c1", group: str = "g") -> RemotingCommand:
    if code == POP:
        return complete(REQUESTS[POP], clientId=client_id, consumerGroup=group)
    return request(
        CONTROL, lite_subscription.encode("PARTIAL_ADD", client_id, group, "orders", ["a"]), bname="broker-a"
    )


def sent_id(on: Stage) -> str:
    sent = on.backend.sent[-1]
    if sent.code == POP:
        return sent.fields["clientId"]
    (subscription,) = load_object(sent.body)["subscriptionSet"]
    assert subscription["liteTopicSet"] == ["a"]
    return str(subscription["clientId"])


@pytest.mark.parametrize("code", [POP, CONTROL])
async def test_a_remoting_client_names_only_itself(code: RequestCode) -> None:
    on, client = stage(settings=AUTHENTICATED), FakeChannel(principal=ALICE)
    with pytest.raises(NotPermitted):
        await on.ask(asked(code), client)
    await on.ask(heartbeat("c1", {"g": ["orders"]}), client)
    for client_id, group in (("c2", "g"), ("c1", "other"), (id_at_brokers("bob", "g", "c1"), "g")):
        with pytest.raises(NotPermitted, match="is not that of this connection"):
            await on.ask(asked(code, client_id, group), client)
    assert on.backend.sent == []
    await on.ask(asked(code), client)
    assert sent_id(on) == id_at_brokers("alice", "g", "c1")


@pytest.mark.parametrize("code", [POP, CONTROL])
async def test_brokers_get_another_id_for_each_user_and_group(code: RequestCode) -> None:
    on = stage(settings=AUTHENTICATED)
    ids = set()
    for principal, group in ((ALICE, "g"), (ALICE, "h"), (BOB, "g")):
        client = FakeChannel(protocol="grpc", signs=False, principal=principal)
        await on.ask(asked(code, "c1", group), client)
        ids.add(sent_id(on))
        restored = request(RequestCode.NOTIFY_UNSUBSCRIBE_LITE, clientId=sent_id(on))
        assert (restore_id(restored), restored.fields["clientId"]) == ("c1", "c1")
    assert len(ids) == 3
    assert restore_id(request(RequestCode.NOTIFY_UNSUBSCRIBE_LITE, clientId="c1")) == "c1"


@pytest.mark.parametrize("code", [POP, CONTROL])
async def test_a_signed_request_stays_as_it_is(code: RequestCode) -> None:
    on, client = stage(settings=AUTHENTICATED), FakeChannel(principal=ALICE)
    await on.ask(heartbeat("c1", {"g": ["orders"]}), client)
    on.core.signing = SigningPolicy(Signer(Credentials("gantry", "secret")))
    command = asked(code)
    sign(command, Credentials("alice", "secret"))
    fields, body = dict(command.fields), command.body
    await on.ask(command, client)
    sent = on.backend.sent[-1]
    assert sent.body == body
    assert sent.fields == fields if code == CONTROL else sent.fields["clientId"] == "c1"


@pytest.mark.parametrize("code", [POP, CONTROL])
async def test_without_users_and_namespaces_ids_are_unchanged(code: RequestCode) -> None:
    on = stage()
    await on.ask(asked(code), FakeChannel(principal=ALICE))
    assert sent_id(on) == "c1"


@pytest.mark.parametrize("code", [POP, CONTROL])
async def test_only_clients_in_a_namespace_are_separated_without_users(code: RequestCode) -> None:
    on = stage(settings=Settings(rules={"file": "rules.toml"}))
    client = FakeChannel(protocol="grpc", signs=False, principal=Principal("", Method.ANONYMOUS))
    for group, expected in (("g", "c1"), ("acme%g", id_at_brokers("", "acme%g", "c1"))):
        await on.ask(asked(code, "c1", group), client)
        assert sent_id(on) == expected
    with pytest.raises(NotPermitted):
        await on.ask(asked(code, id_at_brokers("", "acme%g", "c1"), "g"), client)


async def test_subscriptions_of_several_groups_are_refused() -> None:
    on, client = stage(settings=AUTHENTICATED), FakeChannel(principal=ALICE)
    await on.ask(heartbeat("c1", {"g": ["orders"]}), client)
    first, second = (
        lite_subscription.encode("PARTIAL_ADD", "c1", group, "orders", ["a"])[len(b'{"subscriptionSet":[') : -2]
        for group in ("g", "h")
    )
    both = request(CONTROL, b'{"subscriptionSet":[' + first + b"," + second + b"]}", bname="broker-a")
    with pytest.raises(InvalidRequest, match="several groups"):
        await on.ask(both, client)
