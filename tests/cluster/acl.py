"""Users of brokers with access control, and their requests."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio.to_thread
import orjson
import pytest

from remoting.signature import Credentials
from tests.cluster.client import Client, unique
from tests.cluster.servers import PEERS, Cluster, Gantry, started

# The kit's users of all brokers.
ADMIN, INNER = Credentials("admin", "admin-secret-1"), Credentials("inner", "inner-secret-1")
ALICE, BOB = Credentials("alice", "alice-secret-1"), Credentials("bob", "bob-secret-1")
# The table of Gantry's own credentials.
IDENTITY = f"""
[cluster]
access_key = "{INNER.access_key}"
secret_key = "{INNER.secret_key}"
"""
_UPDATE_ACL = 3007


@contextmanager
def secured_cluster(factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two brokers that check permissions, with a user who may use all topics and groups, and one without permission."""
    options = ("--acl", "--second-broker", "--fast-timers", "--quick")
    with started(factory, "secured", *options) as cluster:
        cluster.user(ALICE.access_key, ALICE.secret_key, "Topic:*=Pub,Sub", "Group:*=Sub")
        cluster.user(BOB.access_key, BOB.secret_key)
        yield cluster


def broker_client(secured: Cluster, name: str = "broker", user: Credentials = ADMIN) -> Client:
    return Client(secured.addresses[name], credentials=user)


def client_of(gantry: Gantry, user: Credentials | None = ALICE, **options: Any) -> Client:
    return Client(gantry.address, credentials=user, **options)


async def new_topic(secured: Cluster, name: str, queues: int = 1, kind: str = "NORMAL") -> str:
    topic = unique(name)
    await anyio.to_thread.run_sync(secured.topic, topic, queues, kind)
    return topic


def run_clients(gantry: Gantry, runs: Sequence[tuple[Credentials, tuple[str, ...]]]) -> list[tuple[int, str]]:
    """Run official clients at the same time; return the exit status and the output of each."""

    def run(run: tuple[Credentials, tuple[str, ...]]) -> tuple[int, str]:
        user, words = run
        environment = {**os.environ, "PEERS_ACCESS_KEY": user.access_key, "PEERS_SECRET_KEY": user.secret_key}
        command: list[str | Path] = [sys.executable, PEERS, "client", *words, "--endpoint", gantry.address]
        done = subprocess.run(
            [*command, "--timeout", "90"], capture_output=True, text=True, timeout=180, env=environment
        )
        return done.returncode, (done.stdout + done.stderr)[-3000:]

    with ThreadPoolExecutor(len(runs)) as pool:
        return list(pool.map(run, runs))


async def put_acl(secured: Cluster, user: str, topic: str, decision: str) -> None:
    entry = {"resource": f"Topic:{topic}", "actions": ["Pub"], "decision": decision}
    body = {"subject": f"User:{user}", "policies": [{"policyType": "Custom", "entries": [entry]}]}
    for name in ("broker", "broker-b"):
        async with broker_client(secured, name) as admin:
            await admin.get(_UPDATE_ACL, {"subject": f"User:{user}"}, orjson.dumps(body))


def authorization(user: Credentials) -> tuple[tuple[str, str], ...]:
    """Return the metadata of a signed gRPC request."""
    date = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    signature = user.key.digest(date.encode()).hex()
    text = f"MQv2-HMAC-SHA1 Credential={user.access_key}, SignedHeaders=x-mq-date-time, Signature={signature}"
    return (("x-mq-date-time", date), ("authorization", text))
