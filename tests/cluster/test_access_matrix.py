"""Each request code and rpc with each kind of credential, by each source of users: before brokers with access control
and on the embedded broker, plain and over TLS.
"""

import asyncio
from collections.abc import Iterator

import pytest

from protos.apache.rocketmq.v2 import service_pb2 as pb
from remoting.broker_requests import TOOL_REQUESTS
from remoting.codes import ResponseCode
from remoting.command import RemotingCommand
from remoting.requests import REQUESTS, Direction
from tests.acl_table.probes import (
    DENIED,
    FOR_ALL_USERS,
    OLD_DATE,
    Rows,
    Target,
    table,
    wait_until_known,
)
from tests.acl_table.requests import GROUP, TOPIC, remoting_requests, rpcs
from tests.cluster.access import (
    ALICE,
    FORBIDDEN,
    PERMITTED,
    ROOT,
    SUPER,
    USERS,
    Secured,
    UserSource,
    before_cluster,
    create_users,
    embedded,
)
from tests.cluster.client import Client
from tests.cluster.reports import figure
from tests.cluster.servers import Cluster, started

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300, func_only=True)]

_SOURCES = list(UserSource)
_EMBEDDED = "embedded"


@pytest.fixture(scope="module", params=_SOURCES, ids=str)
def source(request: pytest.FixtureRequest) -> UserSource:
    return UserSource(request.param)


@pytest.fixture(scope="module", params=[pytest.param("cluster", marks=pytest.mark.cluster), _EMBEDDED])
def secured(
    request: pytest.FixtureRequest, source: UserSource, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("secured")
    if request.param == _EMBEDDED:
        with embedded(directory, source) as replica:
            yield replica
    else:
        cluster = request.getfixturevalue("guarded")
        with before_cluster(directory, source, cluster) as replica:
            yield replica


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A broker with access control, which keeps the users of the matrix."""
    with started(tmp_path_factory, "guarded", "--acl", "--quick") as cluster:
        cluster.topic(TOPIC, 1)
        cluster.group(GROUP)
        create_users(cluster)
        yield cluster


def test_every_code_and_rpc_has_a_row() -> None:
    codes = {spec.name for spec in REQUESTS.values() if spec.direction is not Direction.BROKER}
    assert {label.partition(",")[0] for label, _ in remoting_requests()} == codes
    methods = {method.name for method in pb.DESCRIPTOR.services_by_name["MessagingService"].methods}
    assert {name for name, _ in rpcs()} == methods


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_every_request_with_every_credential(secured: Secured, source: UserSource, tls: bool) -> None:
    address = secured.gantry.address
    target = Target(address, address, secured.authority if tls else None)
    await wait_until_known(target, ROOT)
    rows = await table(target, USERS, ALICE)
    wrong = _unexpected(rows, source)
    assert not wrong, "\n".join(wrong)
    cells = [outcome for row in rows.values() for outcome in row.values()]
    figure(
        f"access by {source}, {'TLS' if tls else 'plain'}, {'cluster' if secured.socket is None else 'embedded'}: "
        f"{len(rows)} requests, {len(cells)} cells as expected, {cells.count(DENIED)} of them denied"
    )


def _unexpected(rows: Rows, source: UserSource) -> list[str]:
    """Return the cells that are not as they should be."""
    tools = {spec.name for spec in REQUESTS.values() if spec.tool}
    wrong = []
    for label, cells in rows.items():
        allowed = {PERMITTED, SUPER}
        if source is UserSource.PLAIN_ACL and label in tools:
            # ACL 1.0 has no permissions for tools: only administrators use them.
            allowed.remove(PERMITTED)
        if label in FOR_ALL_USERS:
            allowed.add(FORBIDDEN)
        wrong += [
            f"{label}, {column}: {outcome}"
            for column, outcome in cells.items()
            if (outcome == DENIED) is (column in allowed)
        ]
        assert cells.keys() >= USERS.keys(), label
    assert all(OLD_DATE in rows[name] for name, _ in rpcs())
    return wrong


@pytest.mark.parametrize("secured", [_EMBEDDED], indirect=True)
@pytest.mark.parametrize("own_listener", [True, False], ids=["own listener", "clients' port"])
async def test_requests_of_tools_that_the_embedded_broker_serves(secured: Secured, own_listener: bool) -> None:
    """Those that brokers and name servers get from tools and replicas only."""
    address = secured.socket if own_listener else secured.gantry.address
    assert address is not None
    await wait_until_known(Target(address, address), ROOT)
    codes = list(TOOL_REQUESTS)
    for column in USERS.keys() - {PERMITTED}:
        async with Client(address, credentials=USERS[column]) as client:
            replies = await asyncio.gather(*(client.ask(code, {"topic": TOPIC}) for code in codes))
        denied = {code for code, reply in zip(codes, replies, strict=True) if _is_denied(reply)}
        assert denied == (set() if column == SUPER else set(codes)), column


def _is_denied(reply: RemotingCommand) -> bool:
    """Return whether Gantry denies a request; requests about an ACL that does not exist get the same code."""
    texts = ("has no permission for", "authentication failed")
    return reply.code == ResponseCode.NO_PERMISSION and any(text in (reply.remark or "") for text in texts)
