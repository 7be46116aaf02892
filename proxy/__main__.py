"""The command line: `gantry serve`, `gantry demo`."""

import argparse
import gc
import logging
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio

from protocol_negotiation.tls import TlsError
from proxy.app import App
from proxy.config import ConfigError, Settings, check_backend, load
from proxy.demo import welcome
from proxy.embedded.store import StorageError

_log = logging.getLogger("gantry")

# What `gantry demo` has instead of the defaults.
_DEMO_LISTEN = "127.0.0.1:8080"
_DEMO_DIRECTORY = Path("gantry-demo")


def main(arguments: list[str] | None = None) -> int:
    """Run a command; the exit status."""
    options = _parse(arguments)
    try:
        settings = load(options.config, _flags(options))
        check_backend(settings)
    except ConfigError as error:
        print(f"gantry: {error}", file=sys.stderr)  # noqa: T201  # logging is not set up yet
        return 2
    logging.basicConfig(
        level=settings.log_level.upper(), format="%(asctime)s %(levelname)-7s %(name)s: %(message)s", stream=sys.stderr
    )
    try:
        greet = welcome if options.command == "demo" else _say_nothing
        anyio.run(_serve, settings, greet, backend_options={"use_uvloop": _has_uvloop()})
    except (OSError, TlsError, StorageError) as error:
        _log.error("%s", error)
        return 1
    return 0


async def _serve(settings: Settings, greet: Callable[[App], None]) -> None:
    app = App(settings)

    def ready() -> None:
        greet(app)
        _ready()

    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:

        async def stop() -> None:
            await _first(signals)
            _log.info("stopping")

        await app.serve(ready, stop)
    _log.info("stopped")


def _say_nothing(_: App) -> None:
    """A server speaks through its log."""


def _ready() -> None:
    # What is there now stays: without this, each full collection would look through every module
    # again (a heartbeat of one of 3,000 clients costs 40 % less with these settings).
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)
    _log.info("ready")


async def _first(signals: AsyncIterator[signal.Signals]) -> None:
    async for _ in signals:
        return


def _has_uvloop() -> bool:
    try:
        import uvloop  # noqa: F401
    except ImportError:
        return False
    return True


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gantry", description="One access point for every RocketMQ client.")
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="serve clients until SIGTERM")
    serve.add_argument(
        "--listen", action="append", metavar="HOST:PORT", help="where clients connect; may be repeated (default :8080)"
    )
    serve.add_argument("--namesrv", metavar="HOST:PORT[;…]", help="name servers of the cluster")
    serve.add_argument(
        "--embedded", type=Path, metavar="DIR", help="instead of a cluster: a broker that keeps all here"
    )
    demo = commands.add_parser("demo", help="try it: an embedded broker with topics, and code to paste")
    demo.add_argument(
        "--listen",
        action="append",
        metavar="HOST:PORT",
        help=f"where clients connect; may be repeated (default {_DEMO_LISTEN})",
    )
    demo.add_argument(
        "--dir",
        dest="embedded",
        type=Path,
        default=_DEMO_DIRECTORY,
        metavar="DIR",
        help=f"where messages are kept (default {_DEMO_DIRECTORY})",
    )
    demo.set_defaults(namesrv=None)
    for command in (serve, demo):
        command.add_argument("--config", type=Path, metavar="FILE", help="TOML file with settings")
        command.add_argument(
            "--embedded-listen",
            metavar="HOST:PORT",
            help="where the embedded broker and its name server listen besides",
        )
        command.add_argument(
            "--log-level", choices=("debug", "info", "warning", "error"), help="least level that is logged"
        )
    return parser.parse_args(arguments)


def _flags(options: argparse.Namespace) -> dict[str, Any]:
    """What was given on the command line, by setting."""
    flags: dict[str, Any] = {"listen": options.listen, "log_level": options.log_level}
    if options.command == "demo":
        flags["listen"] = options.listen or [_DEMO_LISTEN]
        flags["log_level"] = options.log_level or "warning"
    tables = {
        "cluster": {"namesrv": options.namesrv},
        "embedded": {"directory": options.embedded, "listen": options.embedded_listen},
    }
    return _given({**flags, **{name: _given(table) for name, table in tables.items()}})


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value not in (None, {})}


if __name__ == "__main__":
    sys.exit(main())
