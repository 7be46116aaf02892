"""Membership of the command line in a consumer group: heartbeats, and answers to operators' questions."""

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import orjson

from proxy.tools.cli.arguments import Filter
from proxy.tools.cli.client import Client, CommandError
from remoting import command as commands
from remoting import fastjson
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import BodyError, RemotingError
from remoting.names import RETRY_PREFIX

# Seconds between heartbeats; servers drop members after 120.
_HEARTBEAT_INTERVAL = 15.0
_OFFLINE = frozenset((int(ResponseCode.CONSUMER_NOT_ONLINE),))


class GroupMember:
    """A member of `group` that consumes one topic."""

    def __init__(self, client: Client, group: str, topic: str, wanted: Filter) -> None:
        # As of Java clients: address, process, and a number that differs between clients of a process.
        self.client_id = f"{socket.gethostname()}@{os.getpid()}#{time.time_ns()}"
        self.consumed = 0
        self._client = client
        self._group = group
        self._topic = topic
        self._wanted = wanted
        self._start = int(time.time() * 1000)

    async def check_subscriptions(self) -> None:
        """Raise CommandError if the members of the group have another subscription.

        Brokers keep the subscription of the latest heartbeat for all members, who would lose messages.
        """
        try:
            reply = await self._client.ask(
                RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": self._group}, accept=_OFFLINE
            )
            table = fastjson.loads(reply.body).get("subscriptionTable") if reply.code == ResponseCode.SUCCESS else None
        except (CommandError, BodyError):
            # The server does not permit the question.
            return
        others = {
            topic: (str(item.get("subString")), str(item.get("expressionType") or "TAG"))
            for topic, item in (table or {}).items()
            if not topic.startswith(RETRY_PREFIX)
        }
        if others in ({}, {self._topic: (self._wanted.expression, self._wanted.kind)}):
            return
        present = ", ".join(f"{topic} ({expression})" for topic, (expression, _) in sorted(others.items()))
        raise CommandError(
            f"the members of {self._group} consume {present}: another subscription would take messages from them; "
            "use the same topic and filter, or another group"
        )

    async def register(self) -> None:
        """Send a heartbeat. Raises RemotingError, CommandError."""
        reply = await self._client.ask_once(RequestCode.HEART_BEAT, {}, orjson.dumps(self._heartbeat()))
        if reply.code not in (ResponseCode.SUCCESS, ResponseCode.GO_AWAY):
            raise CommandError(f"cannot join {self._group}: {reply.remark}")

    async def leave(self) -> None:
        """Unregister, if the server is still there."""
        fields = {"clientID": self.client_id, "consumerGroup": self._group}
        with suppress(RemotingError):
            await self._client.ask_once(RequestCode.UNREGISTER_CLIENT, fields)

    async def keep(self) -> None:
        """Send heartbeats until cancelled."""
        while True:
            await asyncio.sleep(_HEARTBEAT_INTERVAL)
            # The next request reports a fault, or connects again.
            with suppress(RemotingError, CommandError):
                await self.register()

    def running_info(self, _: RemotingCommand) -> RemotingCommand:
        """Answer GET_CONSUMER_RUNNING_INFO."""
        passed = max(time.time() - self._start / 1000, 1.0)
        rates = {"consumeOKTPS": round(self.consumed / passed, 3), "consumeFailedTPS": 0.0, "consumeFailedMsgs": 0}
        body = {
            "properties": {
                "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
                "PROP_CONSUMER_START_TIMESTAMP": str(self._start),
                "PROP_CLIENT_VERSION": "gantry receive",
            },
            "subscriptionSet": [self._subscription()],
            "mqTable": {},
            "statusTable": {self._topic: {"pullRT": 0.0, "pullTPS": 0.0, "consumeRT": 0.0, **rates}},
        }
        return commands.success(body=orjson.dumps(body))

    def _heartbeat(self) -> dict[str, object]:
        consumer = {
            "groupName": self._group,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "unitMode": False,
            "subscriptionDataSet": [self._subscription()],
        }
        return {"clientID": self.client_id, "producerDataSet": [], "consumerDataSet": [consumer]}

    def _subscription(self) -> dict[str, object]:
        return {
            "topic": self._topic,
            "subString": self._wanted.expression,
            "expressionType": self._wanted.kind,
            "tagsSet": sorted(self._wanted.tags),
            "codeSet": [],
            "subVersion": self._start,
            "classFilterMode": False,
        }


@asynccontextmanager
async def joined(client: Client, group: str, topic: str, wanted: Filter) -> AsyncIterator[GroupMember]:
    """Be a member of the group for the duration of the context, over all reconnections. Raises CommandError."""
    member = GroupMember(client, group, topic, wanted)
    client.answers[RequestCode.GET_CONSUMER_RUNNING_INFO] = member.running_info
    # Pops have no queues that would be distributed again.
    client.answers[RequestCode.NOTIFY_CONSUMER_IDS_CHANGED] = lambda _: None
    await member.check_subscriptions()
    await member.register()
    client.on_connect = member.register
    heartbeats = asyncio.create_task(member.keep())
    try:
        yield member
    finally:
        heartbeats.cancel()
        client.on_connect = None
        await member.leave()
