"""Users without an access key, before a replica with two workers on an embedded broker."""

import ssl
from pathlib import Path

import orjson
import pytest

from proxy.tools.cert.authority import Authority
from remoting.codes import RequestCode, ResponseCode
from tests.cluster.client import Client
from tests.cluster.servers import HOST, Gantry
from tests.ports import free_port
from tests.proxy.auth.users import write
from tests.proxy.workers.processes import wait_for_both

pytestmark = pytest.mark.anyio

# The kernel gives each connection to either worker. That one worker gets all has a probability of 2**-11.
_CONNECTIONS = 12
_USERS = """
[users.carl]
certificates = ["CN=carl"]
[[users.carl.policies]]
resources = ["Cluster:*"]
actions = ["Create", "Update", "Delete"]

[users.sue]
certificates = ["CN=sue"]
role = "super"
"""


async def test_users_of_certificates_cannot_become_or_change_super_users(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "certificates")
    server = authority.issue_server("server", [HOST], 30)
    contexts = {}
    for name in ("carl", "sue"):
        issued = authority.issue_client(name, 30)
        contexts[name] = ssl.create_default_context(cafile=str(authority.certificate_file))
        contexts[name].load_cert_chain(issued.certificate, issued.key)
    config = f"""
        workers = 2
        [embedded]
        directory = "{tmp_path}/store"
        listen = "{HOST}:{free_port()}"
        super_user = "admin"
        super_secret = "admin-secret"
        [auth]
        users = "{write(tmp_path / "users.toml", _USERS)}"
        [tls]
        mode = "enforcing"
        certificate = "{server.certificate}"
        key = "{server.key}"
        client_auth = "required"
        client_ca = "{authority.certificate_file}"
    """
    made = []
    with Gantry(tmp_path, "", config) as gantry:
        wait_for_both(gantry)
        for number in range(_CONNECTIONS):
            async with Client(gantry.address, tls=contexts["carl"]) as carl:
                for code, name, body in (
                    (RequestCode.AUTH_CREATE_USER, f"boss-{number}", {"password": "x", "userType": "Super"}),
                    (RequestCode.AUTH_CREATE_USER, f"boss-{number}", {"password": "x", "UserType": "super"}),
                    (RequestCode.AUTH_UPDATE_USER, "admin", {"password": "guessed"}),
                    (RequestCode.AUTH_DELETE_USER, "admin", {}),
                ):
                    reply = await carl.ask(code, {"username": name}, orjson.dumps(body))
                    assert (reply.code, "super user" in (reply.remark or "")) == (ResponseCode.NO_PERMISSION, True)
                for name in (f"normal-{number}", f"boss-{number}"):
                    reply = await carl.ask(RequestCode.AUTH_CREATE_USER, {"username": name}, b'{"password":"x"}')
                    assert reply.code == ResponseCode.SUCCESS, reply.remark
                reply = await carl.ask(
                    RequestCode.AUTH_UPDATE_USER, {"username": f"boss-{number}"}, b'{"userType":"Super"}'
                )
                assert reply.code == ResponseCode.NO_PERMISSION
            async with Client(gantry.address, tls=contexts["sue"]) as sue:
                super_user = b'{"password":"x","userType":"Super"}'
                reply = await sue.ask(RequestCode.AUTH_CREATE_USER, {"username": f"super-{number}"}, super_user)
                assert reply.code == ResponseCode.SUCCESS, reply.remark
                made = orjson.loads((await sue.ask(RequestCode.AUTH_LIST_USER)).body)
    supers = {user["username"]: user["password"] for user in made if user["userType"] == "Super"}
    assert supers == {"admin": "admin-secret", **{f"super-{number}": "x" for number in range(_CONNECTIONS)}}
