from base64 import b64encode
from pathlib import Path

import pytest

from proxy.admin.access import Access, BadCredentials, Role
from proxy.auth.admin_users import AdminUsers
from proxy.auth.grpc_guard import GrpcGuard
from proxy.core.principal import Method
from proxy.settings.admin import AdminSettings
from remoting.signature import Credentials
from tests.proxy.auth.test_grpc_guard import FakeTokens
from tests.proxy.auth.users import ALICE, IMPOSTOR, OWN_FILE, ROOT, STRANGER, authority

OPERATOR = Credentials("oper-01", "secret-of-oper")
USERS = f"""{OWN_FILE}
[users.oper-01]
secret = "secret-of-oper"
role = "operator"

[groups.readers]
role = "operator"
"""


def basic(credentials: Credentials) -> str:
    return "Basic " + b64encode(f"{credentials.access_key}:{credentials.secret_key}".encode()).decode()


def access(folder: Path) -> Access:
    made = authority(folder, USERS)
    users = AdminUsers(made, GrpcGuard(made, window=300.0, tokens=FakeTokens()))
    return Access(AdminSettings(read_token="a-token-of-admin-settings"), users=users)


@pytest.mark.parametrize(
    ("header", "name", "role"),
    [
        (basic(ROOT), "root-01", Role.WRITE),
        (basic(OPERATOR), "oper-01", Role.READ),
        (basic(ALICE), "alice-1", Role.NONE),
        ("Bearer valid", "carol", Role.READ),
        ("Bearer a-token-of-admin-settings", "read_token", Role.READ),
    ],
)
def test_users_have_the_role_of_the_users_file(tmp_path: Path, header: str, name: str, role: Role) -> None:
    caller = access(tmp_path).caller("192.0.2.1", {"authorization": header}, None)
    assert (caller.name, caller.role) == (name, role)


@pytest.mark.parametrize(
    "header", [basic(STRANGER), basic(IMPOSTOR), "Basic x", "Basic eA==", "Bearer other", "Digest x", ""]
)
def test_other_credentials_are_rejected(tmp_path: Path, header: str) -> None:
    with pytest.raises(BadCredentials):
        access(tmp_path).caller("127.0.0.1", {"authorization": header}, None)


def test_failures_are_counted(tmp_path: Path) -> None:
    made = authority(tmp_path, USERS)
    users = AdminUsers(made, GrpcGuard(made, window=300.0))
    assert users(basic(IMPOSTOR), "192.0.2.1") is None
    assert made.counts == {(Method.PASSWORD, "wrong secret"): 1}
