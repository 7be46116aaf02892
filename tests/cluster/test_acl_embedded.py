"""RocketMQ's own tool manages the users of the embedded broker."""

import sys
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from remoting.codes import RequestCode, ResponseCode
from remoting.signature import Credentials
from tests.cluster.access import ADMIN
from tests.cluster.client import Client, create_topic, described, send_fields, v2, wait_until
from tests.cluster.servers import HOST, PEERS, Cluster, Gantry
from tests.ports import free_port

pytestmark = [pytest.mark.cluster, pytest.mark.anyio, pytest.mark.timeout(420, func_only=True)]

ALICE = Credentials("alice", "alice-secret-1")


async def test_mqadmin_manages_the_users_of_the_embedded_broker(tmp_path: Path) -> None:
    port = free_port()
    config = f"""
        [embedded]
        directory = "{tmp_path / "store"}"
        listen = "{HOST}:{port}"
        super_user = "{ADMIN.access_key}"
        super_secret = "{ADMIN.secret_key}"

        [auth]
        brokers = true
    """
    with Gantry(tmp_path, "", config) as gantry:
        adopt = ("adopt", str(gantry.port), "--pid", str(gantry.pid), "--admin", ADMIN.access_key, ADMIN.secret_key)
        kit = tmp_path / "kit"
        await anyio.run_process([sys.executable, str(PEERS), *adopt, "--dir", str(kit)])
        embedded = Cluster(kit).adopt()

        async def mqadmin(*words: str) -> str:
            return await anyio.to_thread.run_sync(embedded.admin, *words)

        async with (
            Client(f"{HOST}:{port}", credentials=ADMIN) as admin,
            Client(gantry.address, credentials=ALICE) as alice,
        ):
            await create_topic(admin.address, "orders", credentials=ADMIN, exact=True)

            async def permitted() -> bool:
                """Repeat the commands, because the tool's time-out of three seconds includes its own start."""
                fields = v2(alice.named(send_fields("orders")))
                if (await alice.ask(RequestCode.SEND_MESSAGE_V2, fields, b"x")).code == ResponseCode.SUCCESS:
                    return True
                await mqadmin("createUser", "-c", "DefaultCluster", "-u", "alice", "-p", ALICE.secret_key)
                await mqadmin(
                    *("createAcl", "-c", "DefaultCluster", "-s", "User:alice", "-r", "Topic:orders", "-a", "Pub,Sub"),
                    *("-d", "Allow"),
                )
                return False

            await wait_until(permitted, "the permission", 240)
            for denied in (
                await alice.ask(RequestCode.SEND_MESSAGE_V2, v2(alice.named(send_fields("bills"))), b"x"),
                await alice.ask(RequestCode.GET_ALL_TOPIC_CONFIG),
            ):
                assert denied.code == ResponseCode.NO_PERMISSION, described(denied)
        async with Client(f"{HOST}:{port}", credentials=ALICE) as direct:
            for code in (RequestCode.AUTH_LIST_USER, RequestCode.AUTH_LIST_ACL):
                assert (await direct.ask(code)).code == ResponseCode.NO_PERMISSION
