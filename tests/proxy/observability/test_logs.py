"""Log formats, limits, and lines of requests and connections."""

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proxy.observability.logs import BurstFilter, configure
from proxy.settings.embedded import EmbeddedSettings
from proxy.settings.logs import LogSettings
from proxy.settings.model import Settings
from remoting import properties
from remoting.codes import RequestCode
from tests.proxy.messages import request
from tests.proxy.replica import Client, running

pytestmark = pytest.mark.anyio


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """Return the root logger and restore it afterwards."""
    logger = logging.getLogger()
    handlers, level = logger.handlers[:], logger.level
    yield logger
    logger.handlers[:] = handlers
    logger.setLevel(level)


@pytest.fixture
def stream(root: logging.Logger) -> io.StringIO:
    written = io.StringIO()
    configure(LogSettings(format="json"), "info", written)
    return written


def lines(stream: io.StringIO, logger: str) -> list[dict[str, Any]]:
    parsed = [json.loads(line) for line in stream.getvalue().splitlines()]
    return [line for line in parsed if line["logger"] == logger]


def test_a_json_line_has_level_logger_message_and_fields(stream: io.StringIO) -> None:
    logging.getLogger("gantry.test").warning("%d of\n%s", 3, "ten", extra={"fields": {"topic": "orders"}})
    [line] = lines(stream, "gantry.test")
    assert line.pop("time").endswith("+00:00")
    assert line == {"level": "warning", "logger": "gantry.test", "message": "3 of\nten", "topic": "orders"}


def test_a_json_line_contains_the_exception(stream: io.StringIO) -> None:
    try:
        raise ValueError("why")
    except ValueError:
        logging.getLogger("gantry.test").exception("failed")
    [line] = lines(stream, "gantry.test")
    assert "ValueError: why" in line["exception"]


def test_a_text_line_has_level_logger_and_message(root: logging.Logger) -> None:
    written = io.StringIO()
    configure(LogSettings(), "warning", written)
    logging.getLogger("gantry.test").warning("one")
    logging.getLogger("gantry.test").info("two")
    assert written.getvalue().endswith(" WARNING gantry.test: one\n")


def test_control_characters_from_clients_are_escaped(root: logging.Logger) -> None:
    written = io.StringIO()
    configure(LogSettings(), "warning", written)
    forged = "c1\n2026-11-21 10:00:00,000 ERROR   gantry: the store is lost\r\x1b[31m\u2028\u202e\ud800 \u4e2d\u6587"
    logging.getLogger("gantry.test").warning("%s is unknown", forged)
    [line] = written.getvalue().splitlines()
    assert line.endswith(
        r"gantry.test: c1\n2026-11-21 10:00:00,000 ERROR   gantry: the store is lost\r\x1b[31m\u2028\u202e\ud800"
        " \u4e2d\u6587 is unknown"
    )


def test_a_text_traceback_keeps_its_lines(root: logging.Logger) -> None:
    written = io.StringIO()
    configure(LogSettings(), "warning", written)
    try:
        raise ValueError("why")
    except ValueError:
        logging.getLogger("gantry.test").exception("failed")
    assert "gantry.test: failed\nTraceback" in written.getvalue()


def test_a_json_line_encodes_surrogates_big_integers_and_objects(stream: io.StringIO) -> None:
    fields = {"client_id": "a\ud800", "number": 10**30, "other": Path("/x")}
    logging.getLogger("gantry.test").warning("%s", "\udfff", extra={"fields": fields})
    [line] = lines(stream, "gantry.test")
    assert (line["message"], line["client_id"], line["number"], line["other"]) == ("\udfff", "a\ud800", 10**30, "/x")


@pytest.mark.parametrize(
    ("format_", "expected"),
    [("text", " WARNING worker 3 gantry.test: one\n"), ("json", '"worker":3,"message":"one"}\n')],
)
def test_a_line_has_the_number_of_its_worker(root: logging.Logger, format_: str, expected: str) -> None:
    written = io.StringIO()
    configure(LogSettings(format=format_), "warning", written, worker=3)
    logging.getLogger("gantry.test").warning("one")
    assert written.getvalue().endswith(expected)


def test_lines_over_the_burst_are_counted_but_not_written() -> None:
    now = 0.0
    bursts = BurstFilter(2, lambda: now)

    def line(text: str, level: int = logging.WARNING, name: str = "gantry.test") -> logging.LogRecord:
        return logging.LogRecord(name, level, "file", 1, text, (), None)

    assert [bursts.filter(line("a")) for _ in range(5)] == [True, True, False, False, False]
    # Other kinds have separate counts, and unlimited loggers none.
    assert bursts.filter(line("b"))
    assert bursts.filter(line("a", logging.ERROR))
    assert all(bursts.filter(line("a", name="gantry.access")) for _ in range(5))
    now = 10.0
    first = line("a")
    assert bursts.filter(first)
    assert first.getMessage() == "a (3 more of these were not written)"
    again = line("a")
    assert bursts.filter(again)
    assert again.getMessage() == "a"
    for number in range(5_000):
        bursts.filter(line(f"kind {number}"))
    assert len(bursts._windows) <= 1_000


async def test_requests_and_connections_are_logged_without_bodies_and_keys(stream: io.StringIO, tmp_path: Path) -> None:
    settings = Settings(
        listen=["127.0.0.1:0"],
        embedded=EmbeddedSettings(directory=tmp_path),
        logs=LogSettings(format="json", access=True, slow=1e-9),
    )
    fields = {"a": "p", "b": "orders", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "0", "h": "0"}
    fields["i"] = properties.encode({"KEYS": "a secret key"})
    async with running(settings) as app:
        client = await Client.connect(app)
        await client.ask(request(RequestCode.SEND_MESSAGE_V2, b"a secret body", **fields))
        await client.close()
        async with asyncio.timeout(30):
            while not lines(stream, "gantry.connections"):
                await asyncio.sleep(0.01)
    [access] = lines(stream, "gantry.access")
    assert (access["protocol"], access["code"], access["response"], access["ok"]) == (
        "remoting",
        "SEND_MESSAGE_V2",
        0,
        True,
    )
    assert (access["topic"], access["group"], access["broker"], access["messages"]) == ("orders", "p", "broker-a", 1)
    assert 0 < access["broker_ms"] <= access["latency_ms"]
    assert "SUCCESS after" in access["message"]
    [slow] = lines(stream, "gantry.slow")
    assert slow["message"].startswith("slow: remoting SEND_MESSAGE_V2")
    [closed] = lines(stream, "gantry.connections")
    assert (closed["protocol"], closed["requests"]) == ("remoting", 1)
    assert closed["bytes_in"] > 0 < closed["bytes_out"]
    assert "secret" not in stream.getvalue()


async def test_long_polls_are_not_logged_as_slow(stream: io.StringIO, tmp_path: Path) -> None:
    settings = Settings(
        listen=["127.0.0.1:0"],
        embedded=EmbeddedSettings(directory=tmp_path),
        logs=LogSettings(format="json", slow=0.05),
    )
    pop = {"consumerGroup": "g", "topic": "orders", "queueId": -1, "maxMsgNums": 1, "invisibleTime": 10_000}
    pop.update(pollTime=200, bornTime=0, initMode=0)
    fields = {"a": "p", "b": "orders", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "0", "h": "0"}
    async with running(settings) as app:
        client = await Client.connect(app)
        await client.ask(request(RequestCode.SEND_MESSAGE_V2, b"1", **fields))
        await client.ask(request(RequestCode.POP_MESSAGE, **pop))
        await client.ask(request(RequestCode.POP_MESSAGE, **pop))
        await client.close()
    assert [line for line in lines(stream, "gantry.slow") if "POP" in line["message"]] == []
