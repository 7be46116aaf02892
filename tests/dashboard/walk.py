"""Walk through the official dashboard (apache/rocketmq-dashboard) with Gantry behind it.

    python -m tests.dashboard.walk JAR [--cluster] [--static DIR] [--images DIR]

JAR is rocketmq-dashboard-2.1.0.jar, which `mvn package -DskipTests` builds from the project's released source. DIR has
its frontend, if that was built apart. The dashboard connects to the embedded broker's own listener (embedded.listen),
or with --cluster to the name server of a real cluster; its proxy address is Gantry's. Every operation of its pages is
requested, every page is opened in Chromium, and the exit status is 1 if one of them fails.
"""

import argparse
import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Page, Response

from protos.apache.rocketmq.v2.definition_pb2 import ClientType
from protos.apache.rocketmq.v2.service_pb2 import HeartbeatRequest, TelemetryCommand
from remoting import command as commands
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from tests.cluster.client import Client, create_topic, pull_fields, queue_fields, wait_until
from tests.cluster.grpc.consumer import Consumer
from tests.cluster.servers import HOST, Cluster, Gantry, accepts
from tests.dashboard.operations import (
    CLIENT,
    GROUP,
    GRPC_CLIENT,
    PRODUCERS,
    PUSH_GROUP,
    READERS,
    Operation,
    Scene,
    operations,
)
from tests.dashboard.pages import Visit, home, visits
from tests.grpc_gateway.messages import consumer_settings
from tests.ports import free_port
from tests.proxy.admin.http.replicas import UNIQUE_ID
from tests.proxy.admin.live.browser import browsing

# Seconds for the start of the dashboard and for its figures, which it collects once a minute; milliseconds for a step.
_START, _COLLECTED, _STEP = 240, 150, 20_000
_ERRORS = ".ant-notification-notice-error, .ant-message-error"
_ROWS = "tr, h4, .ant-select, .ant-descriptions-row, .ant-modal pre"
# Settings of Gantry.
_SETTINGS = '[admin]\nlisten = "off"\n[grpc]\nmessage_trace = true\nmin_polling = 0.1\n'
# As a gRPC client makes it. The dashboard reads a time from its middle and finds only messages after that time.
_TRACED_ID = "01A1B2C3D4E5F600010000000000000001"
# The frontend sends its requests to this port of localhost.
_PORT = 8082


@contextmanager
def _servers(options: argparse.Namespace, directory: Path) -> Iterator[tuple[Gantry, str]]:
    """Run Gantry; yield it and the address that the dashboard has as its name server's."""
    if options.cluster:
        with (
            Cluster(directory / "cluster") as cluster,
            Gantry(directory, cluster.namesrv, f'tools = "all"\n{_SETTINGS}') as gantry,
        ):
            yield gantry, cluster.namesrv
        return
    address = f"{HOST}:{free_port()}"
    embedded = f'[embedded]\ndirectory = "{directory}/store"\nlisten = "{address}"\n'
    with Gantry(directory, "", f'tools = "all"\n{embedded}{_SETTINGS}') as gantry:
        yield gantry, address


@contextmanager
def _dashboard(options: argparse.Namespace, directory: Path, name_server: str, gantry: Gantry) -> Iterator[str]:
    """Run the dashboard; yield its address."""
    settings = {
        "server.port": _PORT,
        "rocketmq.config.namesrvAddrs[0]": name_server,
        "rocketmq.config.proxyAddr": gantry.address,
        "rocketmq.config.proxyAddrs[0]": gantry.address,
        "rocketmq.config.dataPath": directory / "data",
        "rocketmq.config.isVIPChannel": "false",
    }
    if options.static is not None:
        settings["spring.web.resources.static-locations"] = f"file:{options.static.resolve()}/"
    words = [f"--{name}={value}" for name, value in settings.items()]
    command = ["java", "-Xmx400m", f"-Duser.home={directory}", "-jar", str(options.jar.resolve()), *words]
    with (directory / "dashboard.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=directory, stdout=log, stderr=log, env={**os.environ})
    try:
        yield f"http://localhost:{_PORT}"
    finally:
        process.kill()
        process.wait()


@asynccontextmanager
async def _clients(gantry: Gantry, name_server: str) -> AsyncIterator[Scene]:
    """Clients of both protocols, messages, an offset and a dead letter."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(gantry.address, CLIENT))
        topic = await _new_topic(gantry, "orders", 2)
        async with Client(name_server) as dashboard:
            # The addresses that the dashboard gets, which are not those of Gantry's clients.
            found = (await dashboard.route(topic))["brokerDatas"][0]
        broker, cluster = next(iter(found["brokerAddrs"].values())), found["cluster"]
        client.answers[RequestCode.GET_CONSUMER_RUNNING_INFO] = lambda _: _running_info(topic)
        client.answers[RequestCode.CONSUME_MESSAGE_DIRECTLY] = _consumed
        await client.route(topic)
        await client.heartbeat({GROUP: [topic]}, [PRODUCERS])
        sent = await client.send(topic, b"body", {"UNIQ_KEY": UNIQUE_ID, "KEYS": "k1", "TAGS": "A"})
        for number in range(5):
            await client.send(topic, b"more", {"KEYS": f"k{number}"})
        first, *_ = await client.pull(topic, GROUP)
        dead = {"offset": first.commit_log_offset, "group": GROUP, "delayLevel": -1, "originTopic": topic}
        await client.get(RequestCode.CONSUMER_SEND_MSG_BACK, client.named(dead))
        offset = {**queue_fields(topic, 0, consumerGroup=GROUP), "commitOffset": 2}
        await client.get(RequestCode.UPDATE_CONSUMER_OFFSET, offset)
        consumer = await stack.enter_async_context(Consumer(gantry.address, PUSH_GROUP, topic, GRPC_CLIENT))
        telemetry = consumer.stub.Telemetry(metadata=consumer.metadata)
        stack.callback(telemetry.cancel)
        await telemetry.write(TelemetryCommand(settings=consumer_settings(PUSH_GROUP, [topic])))
        beating = asyncio.ensure_future(_beat(client, consumer, topic))
        stack.callback(beating.cancel)
        traced = await _new_topic(gantry, "traced", 1)
        reader = await stack.enter_async_context(Consumer(gantry.address, READERS, traced))
        await reader.receive(wait=0.1)
        await reader.send(b"traced", message_id=_TRACED_ID, keys=["k1"])
        (message,) = await reader.receive_all(1)
        await reader.ack(message)
        yield Scene(
            name_server=name_server,
            broker=broker,
            proxy=gantry.address,
            cluster=cluster,
            topic=topic,
            message_id=sent.fields["msgId"],
            traced=traced,
            traced_id=_TRACED_ID,
        )


async def _new_topic(gantry: Gantry, name: str, queues: int) -> str:
    """Create a topic; return its name when it has a route, which name servers get from brokers later."""
    topic = await create_topic(gantry.address, name, queues)
    async with Client(gantry.address) as client:

        async def routed() -> bool:
            reply = await client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
            return reply.code == ResponseCode.SUCCESS

        await wait_until(routed, f"a route of {topic}")
    return topic


async def _beat(client: Client, consumer: Consumer, topic: str) -> None:
    """Send the heartbeats of both clients, and pull, so that consumption has figures all the time."""
    alive = HeartbeatRequest(group=consumer.group, client_type=ClientType.PUSH_CONSUMER)
    while True:
        await client.heartbeat({GROUP: [topic]}, [PRODUCERS])
        await client.ask(RequestCode.PULL_MESSAGE, client.named(pull_fields(topic, GROUP)))
        await consumer.call("Heartbeat", alive)
        await asyncio.sleep(10)


def _running_info(topic: str) -> RemotingCommand:
    info = {"mqTable": {}, "properties": {}, "statusTable": {}, "subscriptionSet": [{"topic": topic}], "jstack": "main"}
    return commands.success(body=json.dumps(info).encode())


def _consumed(_: RemotingCommand) -> RemotingCommand:
    body = {"consumeResult": "CR_SUCCESS", "remark": None, "spentTimeMills": 7, "order": False, "autoCommit": True}
    return commands.success(body=json.dumps(body).encode())


async def _started(http: httpx.AsyncClient) -> None:
    async with asyncio.timeout(_START):
        while True:
            try:
                await http.get("/ops/homePage.query")
            except httpx.HTTPError:
                await asyncio.sleep(1)
            else:
                return


async def _request(http: httpx.AsyncClient, operation: Operation) -> str | None:
    """Send a request; return its error."""
    try:
        answer = await http.request(operation.method, operation.path, params=operation.query, json=operation.body)
        reply = answer.json()
    except (httpx.HTTPError, ValueError) as error:
        return repr(error)
    return None if reply.get("status") == 0 else str(reply.get("errMsg") or reply)[:200].replace("\n", " ")


async def _visit(url: str, visit: Visit, images: Path | None) -> str | None:
    """Visit a page; return its errors: failed requests, requests that it did not make, rows that it does not show."""
    faults: list[str] = []
    try:
        async with browsing() as page:
            faults += await _faults(page, url, visit)
            if images is not None:
                await page.screenshot(path=images / f"{visit.name.replace(' ', '-')}.png")
    except AssertionError as error:
        faults.append(f"errors of the page: {error}")
    return "; ".join(faults).replace("\n", " ") or None


async def _faults(page: Page, url: str, visit: Visit) -> list[str]:
    """Take the steps of a visit; return its errors."""
    faults: list[str] = []
    answers: list[Response] = []
    page.set_default_timeout(_STEP)
    page.on("requestfailed", lambda request: faults.append(f"{request.url}: {request.failure}"))
    page.on("response", lambda answer: answers.append(answer) if answer.request.resource_type == "fetch" else None)
    try:
        if visit.clock is not None:
            await page.clock.set_system_time(visit.clock)
        await page.goto(f"{url}/#/{visit.page}")
        await page.wait_for_load_state("networkidle")
        for step in visit.steps:
            await step(page)
            await page.wait_for_load_state("networkidle")
        for row in visit.rows:
            shown = page.locator(_ROWS)
            for text in row:
                shown = shown.filter(has_text=text)
            await shown.locator("visible=true").first.wait_for()
    except PlaywrightError as error:
        faults.append(error.message[:300])
    return [*faults, *await page.locator(_ERRORS).all_inner_texts(), *await _wrong(answers, visit)]


async def _wrong(answers: list[Response], visit: Visit) -> list[str]:
    """Return errors of the backend's answers, and the requests of the visit without their answer."""
    missing, faults = dict(visit.requests), []
    for answer in answers:
        path, text = urlsplit(answer.url).path, await answer.text()
        if answer.status != 200 or json.loads(text).get("status") != 0:
            faults.append(f"{answer.status} {path}: {text[:200]}")
        elif path in missing and missing[path] in json.dumps(json.loads(text), separators=(",", ":")):
            del missing[path]
    return faults + [f"{path} did not answer {text}" for path, text in missing.items()]


async def _collected(http: httpx.AsyncClient, topic: str) -> str | None:
    """Wait until the dashboard has collected consumed messages of a topic; return the error if it does not."""
    figure, text = re.compile(rf"{re.escape(topic)},[1-9]"), ""
    with suppress(TimeoutError):
        async with asyncio.timeout(_COLLECTED):
            while not figure.search(text):
                await asyncio.sleep(2)
                text = (await http.get("/dashboard/topicCurrent.query")).text
    return None if figure.search(text) else f"no consumed messages of {topic} in {text[:200]}"


async def _walk(options: argparse.Namespace, directory: Path) -> int:
    """Print a line for each operation and page; return the number of failures."""
    failed = 0

    def show(kind: str, name: str, error: str | None) -> None:
        nonlocal failed
        failed += error is not None
        sys.stdout.write(f"{'FAIL' if error else 'ok  '} {kind} {name} {error or ''}\n")
        sys.stdout.flush()

    with (
        _servers(options, directory) as (gantry, name_server),
        _dashboard(options, directory, name_server, gantry) as url,
    ):
        async with _clients(gantry, name_server) as scene, httpx.AsyncClient(base_url=url, timeout=40) as http:
            await _started(http)
            for operation in operations(scene):
                show(operation.method, operation.path, await _request(http, operation))
            for visit in visits(scene):
                show("page", visit.name, await _visit(url, visit, options.images))
            show("GET", "/dashboard/topicCurrent.query, with figures", await _collected(http, scene.topic))
            show("page", "home", await _visit(url, home(scene), options.images))
    sys.stdout.write(f"{failed} failed\n")
    return failed


def _lacking(options: argparse.Namespace) -> str | None:
    """Return the part that the walk lacks on this machine."""
    if options.jar is None or not options.jar.is_file():
        return f"JAR=rocketmq-dashboard-2.1.0.jar (given: {options.jar or 'none'}), which no package registry has"
    with zipfile.ZipFile(options.jar) as jar:
        built_in = any(name.endswith(("public/index.html", "static/index.html")) for name in jar.namelist())
    if options.static is None and not built_in:
        return "STATIC=directory of the frontend, which this jar does not contain"
    if options.static is not None and not (options.static / "index.html").is_file():
        return f"STATIC with an index.html (given: {options.static})"
    if missing := [name for name in ("java", "chromium") if shutil.which(name) is None]:
        return " and ".join(missing)
    if accepts(_PORT):
        return f"the port {_PORT}, which another process uses"
    return None


def main() -> int:
    """Run the walk."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jar", type=Path, nargs="?", help="rocketmq-dashboard-2.1.0.jar")
    parser.add_argument("--cluster", action="store_true", help="before a real cluster, not the embedded broker")
    parser.add_argument("--static", type=Path, help="directory of the dashboard's frontend, if the jar has none")
    parser.add_argument("--images", type=Path, help="directory for screenshots")
    options = parser.parse_args()
    if lacking := _lacking(options):
        sys.stderr.write(f"dashboard: needs {lacking}; see tests/dashboard/README.md\n")
        return 2
    if options.images is not None:
        options.images.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        return 1 if asyncio.run(_walk(options, Path(directory))) else 0


if __name__ == "__main__":
    sys.exit(main())
