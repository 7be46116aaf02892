"""Users who are known by a client certificate: commands and doctor present it, and name why it is refused."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.__main__ import main
from tests.cluster.servers import HOST, Gantry
from tests.proxy.tools.cli.shell import Shell

_USERS = """
[users.alice]
certificates = ["CN=alice"]
[[users.alice.policies]]
resources = ["Topic:orders", "Topic:SELF_TEST_TOPIC", "Group:billing", "Cluster:*"]
actions = ["All"]
[users.mallory]
certificates = ["CN=mallory"]
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Shell, Path]]:
    """Run a server that knows users by their certificates; yield it with the folder of these."""
    folder = tmp_path_factory.mktemp("certificates")
    certificates = folder / "c"
    names = [word for name in ("alice", "mallory", "stranger", "revoked") for word in ("--client", name)]
    assert main(["cert", "--dir", str(certificates), "--host", HOST, *names]) == 0
    assert main(["cert", "--dir", str(certificates), "--revoke", "revoked"]) == 0
    users = folder / "users.toml"
    users.touch(0o600)
    users.write_text(_USERS)
    config = f"""
        [embedded]
        directory = "{folder / "data"}"
        [auth]
        users = "{users}"
        [tls]
        mode = "enforcing"
        certificate = "{certificates / "server.pem"}"
        key = "{certificates / "server.key"}"
        client_auth = "optional"
        client_ca = "{certificates / "ca.pem"}"
        crl = "{certificates / "crl.pem"}"
    """
    with Gantry(folder, "", 'tools = "all"\n' + config) as gantry:
        yield Shell(gantry.address), certificates


def certificate(folder: Path, name: str, key: str | None = None) -> tuple[str, ...]:
    files = ("--client-cert", folder / f"{name}.pem", "--client-key", folder / f"{key or name}.key")
    return tuple(map(str, ("--ca", folder / "ca.pem", *files)))


def test_commands_are_those_of_the_certificates_user(place: tuple[Shell, Path]) -> None:
    shell, folder = place
    shell.ok("topics", "create", "orders", *certificate(folder, "alice"))
    assert "broker-a" in shell.ok("send", "orders", "x", *certificate(folder, "alice")).out
    received = shell.ok("receive", "orders", "--group", "billing", "--max", "1", *certificate(folder, "alice"))
    assert received.out.rstrip().endswith("x")
    denied = shell.refused("send", "orders", "x", *certificate(folder, "mallory"))
    assert "the user mallory has no permission" in denied
    assert "authentication failed" in shell.refused("send", "orders", "x", *certificate(folder, "stranger"))


def test_unusable_certificates_are_named(place: tuple[Shell, Path]) -> None:
    shell, folder = place
    refused = shell.refused("topics", *certificate(folder, "revoked"))
    assert refused.endswith("closed the connection; does it want another client certificate (--client-cert)?")
    mixed = shell.run("topics", *certificate(folder, "alice", "mallory"))
    assert (mixed.status, "key values mismatch" in mixed.err) == (2, True)
    alone = shell.run("topics", *certificate(folder, "alice")[:4])
    assert (alone.status, "alice.pem: not a certificate and its key: one of them is missing" in alone.err) == (2, True)
    assert "--client-key needs --client-cert" in shell.run("topics", "--client-key", str(folder / "alice.key")).err


def test_the_doctor_explains_certificates(place: tuple[Shell, Path]) -> None:
    shell, folder = place

    def codes(name: str) -> dict[str, str]:
        words = ("doctor", shell.endpoint, "--topic", "orders", "--json", *certificate(folder, name))
        return {item["code"]: item["text"] for item in json.loads(shell.run(*words).out)["findings"]}

    assert codes("alice")["auth.known"] == "requests without a signature are those of the user alice"
    assert {"auth.known", "topic.forbidden"} <= codes("mallory").keys()
    assert {"auth.needed", "route.refused"} <= codes("stranger").keys()
    assert "tls.client_certificate_refused" in codes("revoked")
