import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from grpc_gateway.clients import telemetry
from protos.apache.rocketmq.v2.definition_pb2 import Code, Language, Settings, Status
from protos.apache.rocketmq.v2.service_pb2 import (
    PrintThreadStackTraceCommand,
    TelemetryCommand,
    ThreadStackTrace,
    VerifyMessageCommand,
)
from remoting import command as commands
from remoting.codes import RequestCode
from remoting.errors import ConsumerNotOnline
from remoting.topic_group_config import GroupConfig
from tests.grpc_gateway.kit import FakeContext, FakeCore, consumer_settings, producer_settings
from tests.grpc_gateway.talk import Stage, Talk
from tests.proxy.fakes import settle

pytestmark = pytest.mark.anyio


def command(settings: Settings) -> TelemetryCommand:
    return TelemetryCommand(settings=settings)


def bad(language: Language = Language.JAVA) -> Settings:
    return producer_settings("no such topic", language=language)


def jstack() -> Any:
    return commands.request(RequestCode.GET_CONSUMER_RUNNING_INFO, {"jstackEnable": "true"})


# Settings.


@pytest.mark.parametrize("settings", [producer_settings(), consumer_settings()])
async def test_settings_are_answered(settings: Settings) -> None:
    stage = Stage()
    talk = await stage.talk()
    talk.send(command(settings))
    answer = await talk.told()
    assert answer.status.code == Code.OK
    assert answer.settings.WhichOneof("pub_sub") == settings.WhichOneof("pub_sub")
    assert answer.settings.backoff_policy.WhichOneof("strategy")
    talk.close()
    assert await talk.read() is None
    assert talk.context.aborted is None
    assert stage.observed == [("Telemetry", Code.OK)]


async def test_settings_make_a_client_known_before_its_first_heartbeat() -> None:
    stage = Stage()
    await stage.talk(consumer_settings())
    assert stage.codes == [RequestCode.HEART_BEAT]


class SlowCore(FakeCore):
    """A core whose brokers do not say what a group is like, until they are let."""

    def __init__(self) -> None:
        super().__init__()
        self.let = asyncio.Event()

    async def group(self, group: str) -> GroupConfig:
        await self.let.wait()
        return GroupConfig(group, orderly=True)


async def test_slow_brokers_do_not_keep_a_client_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "_CONFIG_TIMEOUT", 0.01)
    stage = Stage(core := SlowCore())
    talk = await stage.talk()
    talk.send(command(consumer_settings()))
    first = await talk.told()
    assert not first.settings.subscription.fifo
    core.let.set()
    assert (await talk.told()).settings.subscription.fifo


async def test_a_changed_group_is_told_to_its_members() -> None:
    stage = Stage()
    member = await stage.talk(consumer_settings("g"), "c1")
    other = await stage.talk(consumer_settings("h"), "c2")
    await stage.talk(producer_settings(), "c3")
    for listener in stage.core.listeners:
        listener(GroupConfig("g", orderly=True))
    assert (await member.told()).settings.subscription.fifo
    assert other.got.empty()


async def test_a_group_may_change_while_a_member_has_no_stream() -> None:
    stage = Stage()
    talk = await stage.talk(consumer_settings())
    talk.close()
    assert await talk.read() is None
    stage.telemetry.group_changed(GroupConfig("g", orderly=True))


# Settings that cannot be. Each client survives something else.


@pytest.mark.parametrize("language", [Language.JAVA, Language.GOLANG, Language.CPP, Language.RUST, Language.PYTHON])
async def test_an_impossible_start_fails_at_once(language: Language) -> None:
    talk = await (stage := Stage()).talk()
    talk.send(command(bad(language)))
    assert await talk.read() is None
    assert talk.context.aborted is not None
    code, text = talk.context.aborted
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "ILLEGAL_TOPIC" in text
    assert "no such topic" in text
    assert stage.observed == [("Telemetry", Code.ILLEGAL_TOPIC)]


@pytest.mark.parametrize("language", [Language.NODE_JS, Language.DOT_NET])
async def test_where_the_streams_end_would_do_harm_only_the_status_is_told(language: Language) -> None:
    talk = await Stage().talk()
    talk.send(command(bad(language)))
    answer = await talk.told()
    assert answer.status.code == Code.ILLEGAL_TOPIC
    assert answer.WhichOneof("command") is None
    # And it may do better.
    talk.send(command(producer_settings(language=language)))
    assert (await talk.told()).status.code == Code.OK


async def test_a_client_that_is_under_way_goes_on() -> None:
    stage = Stage()
    talk = await stage.talk(producer_settings())
    talk.send(command(bad()))
    assert (await talk.told()).status.code == Code.ILLEGAL_TOPIC
    assert stage.client().settings == producer_settings()
    talk.send(command(producer_settings("orders", "payments")))
    assert (await talk.told()).status.code == Code.OK


async def test_who_does_not_say_who_it_is_is_told_so() -> None:
    stage = Stage()
    talk = Talk(stage, FakeContext())
    assert (await talk.told()).status.code == Code.CLIENT_ID_REQUIRED
    assert await talk.read() is None
    assert not stage.telemetry.streams


async def test_a_mistake_of_ours_ends_the_stream_as_one() -> None:
    talk = await Stage().talk()
    talk.send(ValueError("not for the client's eyes"))
    assert await talk.read() is None
    assert talk.context.aborted == (grpc.StatusCode.INTERNAL, "INTERNAL_SERVER_ERROR: ValueError")


# Streams.


async def end_cleanly(talk: Talk) -> None:
    talk.close()
    assert await talk.read() is None


async def lose_the_connection(talk: Talk) -> None:
    await talk.broken()


async def be_called_off(talk: Talk) -> None:
    talk.serving.cancel()
    await settle()


async def only_tell_the_callbacks(talk: Talk) -> None:
    talk.context.end()
    await settle()


@pytest.mark.parametrize("end", [end_cleanly, lose_the_connection, be_called_off, only_tell_the_callbacks])
async def test_the_end_of_a_stream_is_noticed_at_once(end: Callable[[Talk], Any]) -> None:
    stage = Stage()
    talk = await stage.talk(consumer_settings())
    client = stage.client()
    question = client.request(jstack(), 5)
    assert (await talk.told()).HasField("print_thread_stack_trace_command")
    await end(talk)
    with pytest.raises(ConsumerNotOnline):
        await question
    assert client.stream is None
    assert not stage.telemetry.streams
    with pytest.raises(ConsumerNotOnline):
        await client.request(jstack(), 5)
    # Many clients live without a stream for a long time.
    assert list(stage.clients) == [client]
    assert RequestCode.UNREGISTER_CLIENT not in stage.codes
    await stage.beat()


async def test_the_newest_stream_is_told_and_an_older_one_takes_over() -> None:
    stage = Stage()
    first = await stage.talk(consumer_settings())
    second = await stage.talk(consumer_settings())
    client = stage.client()
    client.request(jstack(), 5).cancel()
    question = client.request(jstack(), 5)
    assert (await second.told()).HasField("print_thread_stack_trace_command")
    assert first.got.empty()
    await second.broken()
    with pytest.raises(ConsumerNotOnline):
        await question
    question = client.request(jstack(), 5)
    nonce = (await first.told()).print_thread_stack_trace_command.nonce
    first.send(TelemetryCommand(thread_stack_trace=ThreadStackTrace(nonce=nonce, thread_stack_trace="main")))
    assert b"main" in (await question).body


async def test_when_the_older_stream_ends_the_newer_stays() -> None:
    stage = Stage()
    first = await stage.talk(consumer_settings())
    second = await stage.talk(consumer_settings())
    await first.broken()
    stage.telemetry.group_changed(GroupConfig("g", orderly=True))
    assert (await second.told()).settings.subscription.fifo


async def test_nobody_answers_for_another_client() -> None:
    stage = Stage()
    asked = await stage.talk(consumer_settings())
    meddler = await stage.talk(consumer_settings(), "c2")
    question = stage.client().request(jstack(), 5)
    nonce = (await asked.told()).print_thread_stack_trace_command.nonce
    forged = TelemetryCommand(thread_stack_trace=ThreadStackTrace(nonce=nonce, thread_stack_trace="forged"))
    meddler.send(forged)
    await settle()
    assert not question.done()
    asked.send(TelemetryCommand(thread_stack_trace=ThreadStackTrace(nonce=nonce, thread_stack_trace="real")))
    assert b"real" in (await question).body


async def test_unknown_commands_are_passed_over() -> None:
    stage = Stage()
    talk = await stage.talk(consumer_settings())
    talk.send(TelemetryCommand())
    talk.send(TelemetryCommand(status=Status(code=Code.OK)))
    talk.send(TelemetryCommand(print_thread_stack_trace_command=PrintThreadStackTraceCommand(nonce="1")))
    # An unknown field of the oneof, as a newer client may send it.
    talk.send(TelemetryCommand.FromString(b"\xa2\x06\x02\x0a\x00"))
    talk.send(TelemetryCommand(verify_message_command=VerifyMessageCommand(nonce="no such nonce")))
    talk.send(command(consumer_settings()))
    assert (await talk.told()).status.code == Code.OK


async def test_a_client_that_does_not_read_is_let_go() -> None:
    stage = Stage()
    await stage.talk(consumer_settings())
    stream = stage.client().stream
    assert stream is not None
    while stream.write(TelemetryCommand()):
        pass
    await settle()
    assert stage.client().stream is None


async def test_a_stream_counts_as_a_sign_of_life() -> None:
    stage = Stage()
    talk = await stage.talk(consumer_settings())
    client = stage.client()
    client.last_call_at = 0.0
    talk.send(TelemetryCommand())
    await settle()
    assert client.last_call_at > 0


async def test_after_a_farewell_the_stream_ends() -> None:
    stage = Stage()
    talk = await stage.talk(consumer_settings())
    stage.clients.remove(stage.client())
    assert await talk.read() is None
    assert talk.context.aborted is None


async def test_settings_that_come_after_the_farewell_bring_nobody_back() -> None:
    stage = Stage()
    talk = await stage.talk()
    await settle()
    (client,) = stage.clients
    stage.clients.remove(client)
    talk.send(command(consumer_settings()))
    assert await talk.read() is None
    assert client.settings is None
    assert stage.codes == []


# Draining.


@pytest.mark.parametrize(
    ("language", "knows"),
    [
        ("JAVA", True),
        ("GO", True),
        ("HTTP", True),
        ("PYTHON", False),
        ("DOTNET", False),
        ("CPP", False),
        ("RUST", False),
    ],
)
async def test_at_the_end_clients_are_told_where_they_understand_it(language: str, knows: bool) -> None:
    stage = Stage()
    talk = await stage.talk(consumer_settings(), language=language)
    stage.telemetry.drain()
    if knows:
        assert (await talk.told()).HasField("reconnect_endpoints_command")
    assert await talk.read() is None
    assert talk.context.aborted is None


async def test_many_streams_come_and_go_without_a_trace() -> None:
    stage = Stage()
    for number in range(50):
        talk = await stage.talk(consumer_settings(), f"c{number}")
        await (talk.broken() if number % 2 else end_cleanly(talk))
    assert not stage.telemetry.streams
    assert all(client.stream is None for client in stage.clients)
