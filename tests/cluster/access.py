"""Users of the matrix of access in each kind of source, and replicas that authenticate by them."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import trustme

from remoting.signature import Credentials
from tests.acl_table.probes import Users
from tests.acl_table.requests import GROUP, TOPIC
from tests.cluster.servers import HOST, PEERS, Cluster, Gantry
from tests.ports import free_port

# The kit's super users of all brokers.
ADMIN, INNER = Credentials("admin", "admin-secret-1"), Credentials("inner", "inner-secret-1")
ROOT, ALICE, BOB = (Credentials(name, f"secret-of-{name}") for name in ("root-01", "alice-01", "bob-0001"))
# The columns. Alice has exactly the permissions of the rows, Bob has none.
PERMITTED, FORBIDDEN, SUPER = "permitted", "no permission", "super user"
USERS: Users = {
    "no credential": None,
    "unknown user": Credentials("nobody-1", "x"),
    "wrong secret": Credentials(ALICE.access_key, "wrong"),
    FORBIDDEN: BOB,
    PERMITTED: ALICE,
    SUPER: ROOT,
}
_TOPICS = (TOPIC, "table-topic")
_GROUPS = (GROUP, "table-group")
_RESOURCES = (*(f"Topic:{name}" for name in _TOPICS), *(f"Group:{name}" for name in _GROUPS))
# END_TRANSACTION with a blank topic is about all topics; tools read the whole cluster.
GRANTS = {
    **dict.fromkeys(_RESOURCES, "Pub,Sub,Get,Create,Update,Delete"),
    "Topic:*": "Pub",
    "Cluster:*": "Get,List,Update",
}


class UserSource(StrEnum):
    """Kind of the source of users."""

    BROKERS = "brokers"
    PLAIN_ACL = "plain_acl"
    OWN_FILE = "users"


def _own_file() -> str:
    policies = "".join(
        f'[[users.{ALICE.access_key}.policies]]\nresources = "{resource}"\nactions = {actions.split(",")}\n'
        for resource, actions in GRANTS.items()
    )
    users = "".join(f'[users.{user.access_key}]\nsecret = "{user.secret_key}"\n' for user in (ALICE, BOB))
    return f'{users}{policies}[users.{ROOT.access_key}]\nsecret = "{ROOT.secret_key}"\nrole = "super"\n'


def _plain_acl() -> str:
    topics = ", ".join(f"{name}=PUB|SUB" for name in _TOPICS)
    groups = ", ".join(f"{name}=SUB" for name in _GROUPS)
    return f"""
accounts:
- accessKey: {ALICE.access_key}
  secretKey: {ALICE.secret_key}
  defaultTopicPerm: PUB
  defaultGroupPerm: DENY
  topicPerms: [{topics}]
  groupPerms: [{groups}]
- {{accessKey: {BOB.access_key}, secretKey: {BOB.secret_key}, defaultTopicPerm: DENY, defaultGroupPerm: DENY}}
- {{accessKey: {ROOT.access_key}, secretKey: {ROOT.secret_key}, admin: true}}
"""


_FILES = {UserSource.PLAIN_ACL: ("plain_acl.yml", _plain_acl), UserSource.OWN_FILE: ("users.toml", _own_file)}


def auth_config(directory: Path, source: UserSource) -> str:
    """Return the settings of a source; write its file."""
    if source is UserSource.BROKERS:
        return "[auth]\nbrokers = true\n"
    name, text = _FILES[source]
    file = directory / name
    file.touch(0o600)
    file.write_text(text())
    return f'[auth]\n{source} = "{file}"\n'


def create_users(cluster: Cluster) -> None:
    """Create the users at the brokers, ROOT last."""
    cluster.user(BOB.access_key, BOB.secret_key)
    cluster.user(ALICE.access_key, ALICE.secret_key, *(f"{resource}={actions}" for resource, actions in GRANTS.items()))
    cluster.super_user(ROOT.access_key, ROOT.secret_key)


@dataclass(frozen=True)
class Secured:
    """A replica that authenticates clients.

    authority: file of the authority of its certificate. socket: address of the embedded broker's own listener.
    """

    gantry: Gantry
    authority: Path
    socket: str | None = None


def certificate(directory: Path) -> tuple[str, Path]:
    """Return the settings of a new certificate, and the file of its authority."""
    authority = trustme.CA()
    issued = authority.issue_cert(HOST)
    file, chain, key = (directory / name for name in ("authority.pem", "chain.pem", "key.pem"))
    authority.cert_pem.write_to_path(file)
    issued.private_key_pem.write_to_path(key)
    key.chmod(0o600)
    chain.write_bytes(b"".join(part.bytes() for part in issued.cert_chain_pems))
    return f'[tls]\ncertificate = "{chain}"\nkey = "{key}"\n', file


@contextmanager
def before_cluster(directory: Path, source: UserSource, cluster: Cluster) -> Iterator[Secured]:
    """Run a replica before brokers with access control.

    If it has users of its own, which the brokers do not know, it judges the clients and sends their requests as itself.
    """
    tls, authority = certificate(directory)
    config = f"""
        tools = "all"
        {tls}
        [cluster]
        access_key = "{INNER.access_key}"
        secret_key = "{INNER.secret_key}"
        client_signatures = "{"both" if source is UserSource.BROKERS else "check"}"
        {auth_config(directory, source)}
    """
    with Gantry(directory, cluster.namesrv, config) as gantry:
        yield Secured(gantry, authority)


@contextmanager
def embedded(directory: Path, source: UserSource) -> Iterator[Secured]:
    """Run a replica with an embedded broker, which has a listener of its own."""
    tls, authority = certificate(directory)
    port = free_port()
    config = f"""
        tools = "all"
        {tls}
        [embedded]
        directory = "{directory / "store"}"
        listen = "{HOST}:{port}"
        super_user = "{ADMIN.access_key}"
        super_secret = "{ADMIN.secret_key}"
        {auth_config(directory, source)}
    """
    admin = ADMIN if source is UserSource.BROKERS else ROOT
    kit = directory / "kit"
    with Gantry(directory, "", config) as gantry:
        adopt = [sys.executable, str(PEERS), "adopt", str(port), "--pid", str(gantry.pid), "--dir", str(kit)]
        adopt += ["--admin", admin.access_key, admin.secret_key]
        subprocess.run(adopt, check=True, stdout=subprocess.DEVNULL)
        adopted = Cluster(kit).adopt()
        if source is UserSource.BROKERS:
            create_users(adopted)
        adopted.topic(TOPIC, 1)
        adopted.group(GROUP)
        yield Secured(gantry, authority, f"{HOST}:{port}")
