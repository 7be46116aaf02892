import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from grpc_gateway.clients import client_settings, telemetry
from protos.apache.rocketmq.v2.definition_pb2 import ClientType, Code, Language, Settings, Status
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
from tests.grpc_gateway.client_harness import LITE_GROUP, ClientHarness, TelemetrySession
from tests.grpc_gateway.fakes import FakeConnection, FakeContext, FakeCore
from tests.grpc_gateway.messages import consumer_settings, producer_settings
from tests.proxy.fakes import settle

pytestmark = pytest.mark.anyio


def settings_command(settings: Settings) -> TelemetryCommand:
    return TelemetryCommand(settings=settings)


def invalid_settings(language: Language = Language.JAVA) -> Settings:
    return producer_settings("no such topic", language=language)


def stack_trace_request() -> Any:
    return commands.request(RequestCode.GET_CONSUMER_RUNNING_INFO, {"jstackEnable": "true"})


# Settings.


@pytest.mark.parametrize("settings", [producer_settings(), consumer_settings()])
async def test_settings_are_answered_with_effective_settings(settings: Settings) -> None:
    harness = ClientHarness()
    session = await harness.open_session()
    session.send(settings_command(settings))
    answer = await session.read_command()
    assert answer.status.code == Code.OK
    assert answer.settings.WhichOneof("pub_sub") == settings.WhichOneof("pub_sub")
    assert answer.settings.backoff_policy.WhichOneof("strategy")
    session.close()
    assert await session.read() is None
    assert session.context.aborted is None
    assert harness.observed == [("Telemetry", Code.OK)]


async def test_producer_without_a_client_type_gets_settings() -> None:
    harness = ClientHarness()
    settings = producer_settings()
    settings.ClearField("client_type")
    session = await harness.open_session()
    session.send(settings_command(settings))
    answer = await session.read_command()
    assert answer.status.code == Code.OK
    assert answer.settings.publishing.max_body_size > 0
    assert harness.client().client_type == ClientType.PRODUCER


async def test_the_settings_of_a_connections_clients_are_limited() -> None:
    """Each client may have settings of 256 KiB, and a connection 256 clients."""
    harness, connection = ClientHarness(), FakeConnection()
    large = producer_settings(*(f"{number:04}-{'x' * 120}" for number in range(1000)))

    async def send(client_id: str, settings: Settings) -> Any:
        session = TelemetrySession(harness, harness.context(client_id, connection=connection))
        session.send(settings_command(settings))
        return await session.read()

    most = client_settings.MAX_CONNECTION_SETTINGS_BYTES // large.ByteSize()
    for number in range(most):
        assert (await send(f"c{number}", large)).status.code == Code.OK
    assert harness.clients.memory(connection) > 10 * most * large.ByteSize()
    assert await send("c-new", large) is None
    # Its own former settings do not count.
    assert (await send("c0", large)).status.code == Code.OK
    assert (await send("c0", producer_settings())).status.code == Code.OK
    assert (await send("c-new", large)).status.code == Code.OK


async def test_settings_register_a_client_before_its_first_heartbeat() -> None:
    harness = ClientHarness()
    await harness.open_session(consumer_settings())
    assert harness.command_codes == [RequestCode.HEART_BEAT]


class SlowCore(FakeCore):
    """A core that returns group configurations only after `released` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.released = asyncio.Event()

    async def group(self, group: str) -> GroupConfig:
        await self.released.wait()
        return GroupConfig(group, orderly=True)


async def test_settings_do_not_wait_for_a_slow_group_configuration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(telemetry, "_CONFIG_TIMEOUT", 0.01)
    harness = ClientHarness(core := SlowCore())
    session = await harness.open_session()
    session.send(settings_command(consumer_settings()))
    first = await session.read_command()
    assert not first.settings.subscription.fifo
    core.released.set()
    assert (await session.read_command()).settings.subscription.fifo


async def test_changed_group_configuration_is_sent_to_its_members() -> None:
    harness = ClientHarness()
    member = await harness.open_session(consumer_settings("g"), "c1")
    other = await harness.open_session(consumer_settings("h"), "c2")
    await harness.open_session(producer_settings(), "c3")
    for listener in harness.core.listeners:
        listener(GroupConfig("g", orderly=True))
    assert (await member.read_command()).settings.subscription.fifo
    assert other.received.empty()


async def test_group_may_change_while_a_member_has_no_stream() -> None:
    harness = ClientHarness()
    session = await harness.open_session(consumer_settings())
    session.close()
    assert await session.read() is None
    harness.telemetry.group_changed(GroupConfig("g", orderly=True))


# Invalid settings: clients differ in the errors that they survive.


@pytest.mark.parametrize("language", [Language.JAVA, Language.GOLANG, Language.CPP, Language.RUST, Language.PYTHON])
async def test_invalid_first_settings_end_the_stream_with_an_error(language: Language) -> None:
    session = await (harness := ClientHarness()).open_session()
    session.send(settings_command(invalid_settings(language)))
    assert await session.read() is None
    assert session.context.aborted is not None
    code, text = session.context.aborted
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "ILLEGAL_TOPIC" in text
    assert "no such topic" in text
    assert harness.observed == [("Telemetry", Code.ILLEGAL_TOPIC)]


@pytest.mark.parametrize(
    ("group", "settings", "text"),
    [
        (
            GroupConfig("g"),
            consumer_settings(kind=ClientType.LITE_PUSH_CONSUMER),
            "ILLEGAL_CONSUMER_GROUP: regular group cannot use LITE mode: g",
        ),
        (LITE_GROUP, consumer_settings(), "ILLEGAL_CONSUMER_GROUP: lite group must use LITE mode: g"),
        (
            LITE_GROUP,
            consumer_settings(topics=("orders", "others"), kind=ClientType.LITE_PUSH_CONSUMER),
            "ILLEGAL_TOPIC: lite group g is expected to bind topic orders, but actual is others",
        ),
    ],
)
async def test_settings_end_the_stream_unless_group_and_client_are_both_lite(
    group: GroupConfig, settings: Settings, text: str
) -> None:
    harness = ClientHarness(FakeCore(groups={"g": group}))
    session = await harness.open_session(settings)
    assert session.context.aborted == (grpc.StatusCode.INVALID_ARGUMENT, text)
    assert harness.client().settings is None
    assert harness.command_codes == []


@pytest.mark.parametrize("group", [LITE_GROUP, GroupConfig("g", assumed=True)])
async def test_settings_of_a_lite_consumer_are_accepted_in_its_group(group: GroupConfig) -> None:
    harness = ClientHarness(FakeCore(groups={"g": group}))
    session = await harness.open_session()
    session.send(settings_command(consumer_settings(kind=ClientType.LITE_PUSH_CONSUMER)))
    assert (await session.read_command()).status.code == Code.OK


async def test_member_gets_a_status_when_its_group_becomes_lite() -> None:
    harness = ClientHarness()
    member = await harness.open_session(consumer_settings())
    harness.telemetry.group_changed(LITE_GROUP)
    answer = await member.read_command()
    assert (answer.status.code, answer.WhichOneof("command")) == (Code.ILLEGAL_CONSUMER_GROUP, None)


class _Namespace:
    """A namespace without names in requests, and with shorter texts."""

    def map_request(self, message: Any) -> None: ...

    def map_response(self, message: TelemetryCommand) -> None:
        message.status.message = message.status.message.removeprefix("regular ")


async def test_error_that_ends_a_stream_has_the_names_of_the_client() -> None:
    harness = ClientHarness()
    harness.client().name_mapping = _Namespace()
    session = await harness.open_session(consumer_settings(kind=ClientType.LITE_PUSH_CONSUMER))
    assert session.context.aborted is not None
    assert session.context.aborted[1] == "ILLEGAL_CONSUMER_GROUP: group cannot use LITE mode: g"


@pytest.mark.parametrize("language", [Language.NODE_JS, Language.DOT_NET])
async def test_invalid_settings_of_node_and_csharp_get_a_status_on_the_stream(language: Language) -> None:
    session = await ClientHarness().open_session()
    session.send(settings_command(invalid_settings(language)))
    answer = await session.read_command()
    assert answer.status.code == Code.ILLEGAL_TOPIC
    assert answer.WhichOneof("command") is None
    # The client may send valid settings later.
    session.send(settings_command(producer_settings(language=language)))
    assert (await session.read_command()).status.code == Code.OK


async def test_invalid_later_settings_leave_the_valid_ones_in_use() -> None:
    harness = ClientHarness()
    session = await harness.open_session(producer_settings())
    session.send(settings_command(invalid_settings()))
    assert (await session.read_command()).status.code == Code.ILLEGAL_TOPIC
    assert harness.client().settings == producer_settings()
    session.send(settings_command(producer_settings("orders", "payments")))
    assert (await session.read_command()).status.code == Code.OK


async def test_stream_without_client_id_gets_a_status() -> None:
    harness = ClientHarness()
    session = TelemetrySession(harness, FakeContext())
    assert (await session.read_command()).status.code == Code.CLIENT_ID_REQUIRED
    assert await session.read() is None
    assert not harness.telemetry.streams


async def test_unexpected_error_ends_the_stream_with_its_type_only() -> None:
    session = await ClientHarness().open_session()
    session.send(ValueError("must not be sent to the client"))
    assert await session.read() is None
    assert session.context.aborted == (grpc.StatusCode.INTERNAL, "INTERNAL_SERVER_ERROR: ValueError")


# Streams.


async def half_close(session: TelemetrySession) -> None:
    session.close()
    assert await session.read() is None


async def lose_connection(session: TelemetrySession) -> None:
    await session.disconnect()


async def cancel_handler(session: TelemetrySession) -> None:
    session.serving.cancel()
    await settle()


async def call_callbacks_only(session: TelemetrySession) -> None:
    session.context.end()
    await settle()


@pytest.mark.parametrize("end", [half_close, lose_connection, cancel_handler, call_callbacks_only])
async def test_end_of_a_stream_fails_requests_but_keeps_the_client(end: Callable[[TelemetrySession], Any]) -> None:
    harness = ClientHarness()
    session = await harness.open_session(consumer_settings())
    client = harness.client()
    reply = client.request(stack_trace_request(), 5)
    assert (await session.read_command()).HasField("print_thread_stack_trace_command")
    await end(session)
    with pytest.raises(ConsumerNotOnline):
        await reply
    assert client.stream is None
    assert not harness.telemetry.streams
    with pytest.raises(ConsumerNotOnline):
        await client.request(stack_trace_request(), 5)
    # Many clients have no stream for a long time.
    assert list(harness.clients) == [client]
    assert RequestCode.UNREGISTER_CLIENT not in harness.command_codes
    await harness.heartbeat()


async def test_newest_stream_is_used_and_an_older_one_takes_over() -> None:
    harness = ClientHarness()
    first = await harness.open_session(consumer_settings())
    second = await harness.open_session(consumer_settings())
    client = harness.client()
    client.request(stack_trace_request(), 5).cancel()
    reply = client.request(stack_trace_request(), 5)
    assert (await second.read_command()).HasField("print_thread_stack_trace_command")
    assert first.received.empty()
    await second.disconnect()
    with pytest.raises(ConsumerNotOnline):
        await reply
    reply = client.request(stack_trace_request(), 5)
    nonce = (await first.read_command()).print_thread_stack_trace_command.nonce
    first.send(TelemetryCommand(thread_stack_trace=ThreadStackTrace(nonce=nonce, thread_stack_trace="main")))
    assert b"main" in (await reply).body


async def test_newer_stream_stays_in_use_when_the_older_ends() -> None:
    harness = ClientHarness()
    first = await harness.open_session(consumer_settings())
    second = await harness.open_session(consumer_settings())
    await first.disconnect()
    harness.telemetry.group_changed(GroupConfig("g", orderly=True))
    assert (await second.read_command()).settings.subscription.fifo


async def test_reply_of_another_client_is_ignored() -> None:
    harness = ClientHarness()
    target = await harness.open_session(consumer_settings())
    other_client = await harness.open_session(consumer_settings(), "c2")
    reply = harness.client().request(stack_trace_request(), 5)
    nonce = (await target.read_command()).print_thread_stack_trace_command.nonce
    forged = TelemetryCommand(thread_stack_trace=ThreadStackTrace(nonce=nonce, thread_stack_trace="forged"))
    other_client.send(forged)
    await settle()
    assert not reply.done()
    target.send(TelemetryCommand(thread_stack_trace=ThreadStackTrace(nonce=nonce, thread_stack_trace="real")))
    assert b"real" in (await reply).body


async def test_unknown_commands_are_ignored() -> None:
    harness = ClientHarness()
    session = await harness.open_session(consumer_settings())
    session.send(TelemetryCommand())
    session.send(TelemetryCommand(status=Status(code=Code.OK)))
    session.send(TelemetryCommand(print_thread_stack_trace_command=PrintThreadStackTraceCommand(nonce="1")))
    # An unknown field of the oneof, as a newer client may send it.
    session.send(TelemetryCommand.FromString(b"\xa2\x06\x02\x0a\x00"))
    session.send(TelemetryCommand(verify_message_command=VerifyMessageCommand(nonce="no such nonce")))
    session.send(settings_command(consumer_settings()))
    assert (await session.read_command()).status.code == Code.OK


async def test_stream_of_a_client_that_does_not_read_ends() -> None:
    harness = ClientHarness()
    await harness.open_session(consumer_settings())
    stream = harness.client().stream
    assert stream is not None
    while stream.write(TelemetryCommand()):
        pass
    await settle()
    assert harness.client().stream is None


async def test_telemetry_command_updates_the_time_of_the_last_call() -> None:
    harness = ClientHarness()
    session = await harness.open_session(consumer_settings())
    client = harness.client()
    client.last_call_at = 0.0
    session.send(TelemetryCommand())
    await settle()
    assert client.last_call_at > 0


async def test_removal_of_a_client_ends_its_stream() -> None:
    harness = ClientHarness()
    session = await harness.open_session(consumer_settings())
    harness.clients.remove(harness.client())
    assert await session.read() is None
    assert session.context.aborted is None


async def test_settings_of_a_removed_client_are_ignored() -> None:
    harness = ClientHarness()
    session = await harness.open_session()
    await settle()
    (client,) = harness.clients
    harness.clients.remove(client)
    session.send(settings_command(consumer_settings()))
    assert await session.read() is None
    assert client.settings is None
    assert harness.command_codes == []


# Drain.


@pytest.mark.parametrize(
    ("language", "supported"),
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
async def test_drain_sends_reconnect_if_supported_and_ends_streams(language: str, supported: bool) -> None:
    harness = ClientHarness()
    session = await harness.open_session(consumer_settings(), language=language)
    harness.telemetry.drain()
    if supported:
        assert (await session.read_command()).HasField("reconnect_endpoints_command")
    assert await session.read() is None
    assert session.context.aborted is None


async def test_ended_streams_are_removed() -> None:
    harness = ClientHarness()
    for number in range(50):
        session = await harness.open_session(consumer_settings(), f"c{number}")
        await (session.disconnect() if number % 2 else half_close(session))
    assert not harness.telemetry.streams
    assert all(client.stream is None for client in harness.clients)
