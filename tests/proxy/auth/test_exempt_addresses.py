"""Addresses that ACL 1.0 lets in without a secret."""

from pathlib import Path

import pytest

from proxy.auth.authority import Authority, Forbidden, NotAuthenticated
from proxy.auth.stores.store import explain
from remoting.codes import RequestCode
from remoting.signature import Credentials
from tests.proxy.auth.requests import SERVED, ask, command
from tests.proxy.auth.users import BOB, OWN_FILE, ROOT, own_source, plain_authority, plain_source, signed, undelayed


def test_addresses_that_acl_1_exempts(tmp_path: Path) -> None:
    text = (
        "globalWhiteRemoteAddresses: [10.0.0.*]\naccounts:\n"
        "- {accessKey: carol-1, secretKey: secret-of-carol, whiteRemoteAddress: 10.9.9.9}"
    )
    made = plain_authority(tmp_path, text)
    ask(made, command(RequestCode.PULL_MESSAGE), "10.0.0.1:1")
    with pytest.raises(NotAuthenticated):
        ask(made, command(RequestCode.PULL_MESSAGE), "10.0.1.1:1")
    carol = Credentials("carol-1", "wrong")
    ask(made, signed(command(RequestCode.PULL_MESSAGE), carol), "10.9.9.9:1")
    with pytest.raises(NotAuthenticated):
        ask(made, signed(command(RequestCode.PULL_MESSAGE), carol), "10.9.9.8:1")


_WHITE_LISTS = """
globalWhiteRemoteAddresses: [10.0.0.*]
accounts:
- {accessKey: carol-1, secretKey: secret-of-carol, whiteRemoteAddress: 10.9.9.9, defaultTopicPerm: DENY}
- {accessKey: root-01, secretKey: secret-of-root, whiteRemoteAddress: 10.9.9.8, admin: true}
"""
CAROL = Credentials("carol-1", "wrong")


@pytest.mark.parametrize(
    ("credentials", "address", "is_super"),
    [
        (None, "10.0.0.1", False),
        (CAROL, "10.9.9.9", False),
        (Credentials("carol-1", "secret-of-carol"), "10.0.0.1", False),
        # The address does not prove the name of an admin, only the secret or the account's own white list does.
        (Credentials("root-01", "wrong"), "10.0.0.1", False),
        (ROOT, "10.0.0.1", True),
        (Credentials("root-01", "wrong"), "10.9.9.8", True),
    ],
)
def test_exempt_addresses_do_what_clients_do_and_only_admins_more(
    tmp_path: Path, credentials: Credentials | None, address: str, is_super: bool
) -> None:
    made = plain_authority(tmp_path, _WHITE_LISTS)
    for spec in SERVED:
        sent = signed(command(spec.code), credentials)
        if is_super or not spec.tool:
            ask(made, sent, f"{address}:1")
        else:
            with pytest.raises(Forbidden):
                ask(made, sent, f"{address}:1")
    user = "nobody" if credentials is None else credentials.access_key
    if not (user == "root-01" and not is_super):
        for action, resource in (("Pub", "Topic:t"), ("Sub", "Group:g")):
            assert explain(made.sources, user, action, resource, address).allowed
        for action, resource in (("Delete", "Topic:t"), ("Update", "Cluster:c")):
            assert explain(made.sources, user, action, resource, address).allowed is is_super


def test_exempt_addresses_do_not_take_permissions_from_signed_users(tmp_path: Path) -> None:
    source = plain_source(tmp_path, _WHITE_LISTS)
    policy = '[[users.bob-0001.policies]]\nresources = "Topic:orders"\nactions = "Create"\n'
    made = undelayed(Authority([own_source(tmp_path, OWN_FILE + policy), source]))
    create = RequestCode.UPDATE_AND_CREATE_TOPIC
    ask(made, signed(command(create), BOB))
    with pytest.raises(Forbidden):
        ask(made, signed(command(create), Credentials("bob-0001", "wrong")))
