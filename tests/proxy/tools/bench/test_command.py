"""`gantry bench` against a replica on the embedded broker."""

import asyncio
from collections.abc import Iterator

import httpx
import pytest

from tests.cluster.servers import Gantry
from tests.ports import HOST, free_port
from tests.proxy.tools.cli.shell import Shell, embedded

_SHORT = ("--duration", "1s", "--warmup", "200ms", "--clients", "2")


@pytest.fixture(scope="module")
def admin() -> str:
    return f"{HOST}:{free_port()}"


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory, admin: str) -> Iterator[Shell]:
    directory = tmp_path_factory.mktemp("bench")
    config = f'{embedded(directory / "data")}[admin]\nlisten = "{admin}"\n'
    with Gantry(directory, "", config) as gantry:
        yield Shell(gantry.address)


@pytest.mark.parametrize("protocol", ["remoting", "grpc"])
def test_both_sends_and_receives_every_message(shell: Shell, protocol: str) -> None:
    topic = shell.topic(f"bench-{protocol}")
    shell.ok("send", topic, "older", "--count", 40)
    words = ("bench", "both", topic, "--protocol", protocol, "--rate", "100/s", "--size", "1KiB", "--group", protocol)
    found = shell.ok(*words, *_SHORT, "--json").object
    assert (found["protocol"], found["missing"], found["rate"]) == (protocol, 0, 100.0)
    assert found["send"]["messages"] == found["receive"]["messages"] == 100
    assert found["send"]["bytes"] == 102_400
    for side in ("send", "receive", "acknowledge"):
        latency = found[side]["latency_ms"]
        assert 0 < latency["p50"] <= latency["p99"] <= latency["max"]
        assert found[side]["errors"] == {}
        assert found[side]["histogram"].startswith("HISTFAAAA")


@pytest.mark.parametrize("protocol", ["remoting", "grpc"])
def test_receive_measures_messages_of_another_process(shell: Shell, protocol: str) -> None:
    topic = shell.topic(f"bench-receive-{protocol}")
    with shell.following("bench", "send", topic, "--rate", "100/s", "--duration", "60s"):
        words = ("bench", "receive", topic, "--protocol", protocol, "--group", f"r-{protocol}")
        found = shell.ok(*words, "--duration", "3s", "--warmup", "4s", "--clients", "1", "--json").object
    assert "send" not in found
    assert found["receive"]["messages"] > 0
    assert found["receive"]["latency_ms"]["p50"] < 30_000


@pytest.mark.parametrize("protocol", ["remoting", "grpc"])
@pytest.mark.parametrize("action", ["send", "receive", "both"])
def test_unknown_topic_is_refused(shell: Shell, action: str, protocol: str) -> None:
    refusal = shell.refused("bench", action, "no-such-topic", "--protocol", protocol)
    assert refusal == ("there is no topic no-such-topic; `gantry topics` lists them, `gantry topics create` makes one")


def test_missing_action_and_unverified_certificates_are_refused(shell: Shell) -> None:
    assert shell.refused("bench", status=2) == "give an action: send, receive or both"
    refusal = shell.refused("bench", "send", "t", "--protocol", "grpc", "--insecure", status=2)
    assert refusal == "gRPC verifies certificates: give the CA with --ca instead of --insecure"


def test_table_names_figures_and_the_generators_cpu(shell: Shell) -> None:
    topic = shell.topic("bench-table")
    shown = shell.ok("bench", "both", topic, "--rate", "50/s", *_SHORT).out
    for text in ("PER SECOND", "P99.9", "delivery", "acknowledge", "The load generator used"):
        assert text in shown


@pytest.mark.anyio
@pytest.mark.parametrize("protocol", ["remoting", "grpc"])
async def test_load_shows_up_as_clients(shell: Shell, admin: str, protocol: str) -> None:
    group = f"seen-{protocol}"
    topic = await asyncio.to_thread(lambda: shell.topic(f"bench-{group}"))
    words = ("bench", "receive", topic, "--protocol", protocol, "--group", group, "--duration", "60s")
    with shell.following(*words):
        async with httpx.AsyncClient(base_url=f"http://{admin}", timeout=30) as http, asyncio.timeout(45):
            members: list[str] = []
            while len(members) < 4:
                await asyncio.sleep(0.1)
                answer = await http.get(f"/v1/consumer-groups/{group}")
                members = answer.json().get("members", [])
