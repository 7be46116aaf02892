"""The command line: `gantry serve`, `gantry demo`, `gantry doctor`, and the commands of `proxy.tools.cli`."""

import argparse
import asyncio
import gc
import logging
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from proxy.tools import extensions
from proxy.tools.cli.parser import COMMAND_NAMES, COMMAND_PARSER, add_commands
from proxy.tools.doctor import arguments as doctor

if TYPE_CHECKING:
    from proxy.app import App
    from proxy.settings.loading import Sources
    from proxy.settings.model import Settings

_log = logging.getLogger("gantry")

# What `gantry demo` has instead of the defaults.
_DEMO_LISTEN = "127.0.0.1:8080"
_DEMO_DIRECTORY = Path("gantry-demo")
_DEMO_INTERVAL = 10.0


def main(arguments: list[str] | None = None) -> int:
    """Run a command; the exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    if given and given[0] in extensions.KNOWN:
        return _run_extension(given[0], given[1:])
    options = command_parser().parse_args(arguments)
    if options.command in COMMAND_NAMES:
        from proxy.tools.cli.run import run as run_command

        return run_command(options)
    if options.command == "doctor":
        from proxy.tools.doctor.command import run

        return run(options)
    return _run_server(options, sys.argv[1:] if arguments is None else arguments)


def _run_extension(name: str, arguments: list[str]) -> int:
    command = extensions.find(name)
    if command is None:
        sentence = f"gantry: {name} is not installed: pip install 'rocketmq-gantry[{name}]'"
        print(sentence, file=sys.stderr)  # noqa: T201  # logging is not set up yet
        return 2
    return command(arguments)


def _run_server(options: argparse.Namespace, arguments: list[str]) -> int:
    # Imported here, as all this takes longer than most commands that do without.
    with _loading():
        from protocol_negotiation.tls import TlsError
        from proxy.embedded.store import StorageError
        from proxy.observability import logs
        from proxy.observability.records.errors import TrafficError
        from proxy.settings.loading import ConfigError, Sources, check_backend
        from proxy.tools.demo import welcome
        from proxy.traffic_rules.parsing import RulesError
        from proxy.workers.supervisor import supervise
        from proxy.workers.worker_settings import WorkerSources, check_workers, of_worker

    try:
        sources = Sources(options.config, _flags(options))
        settings = sources.load()
        check_backend(settings)
        check_workers(settings)
    except ConfigError as error:
        print(f"gantry: {error}", file=sys.stderr)  # noqa: T201  # logging is not set up yet
        return 2
    logs.configure(settings.logs, settings.log_level, worker=None if options.worker is None else options.worker[0])
    try:
        if settings.workers > 1 and options.worker is None:
            return asyncio.run(supervise(settings, arguments))
        greet = welcome if options.command == "demo" else _say_nothing
        number, descriptor = options.worker or (0, None)
        if descriptor is not None:
            settings = of_worker(settings, number)
            sources = WorkerSources(sources.file, sources.flags, number)
        loop = {"use_uvloop": _has_uvloop()}
        anyio.run(_serve, settings, sources, greet, number, descriptor, backend_options=loop)
    except (OSError, TlsError, StorageError, TrafficError, RulesError) as error:
        _log.error("%s", error)
        return 1
    return 0


async def _serve(
    settings: "Settings",
    sources: "Sources",
    greet: Callable[["App", str | None], None],
    number: int,
    descriptor: int | None,
) -> None:
    """Serve; as the worker of this number where there is a descriptor, which leads to the parent."""
    with _loading():
        from proxy.app import App
        from proxy.workers.control import controlled

    app = App(settings, sources, number)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, app.rules.reload_soon)
    async with controlled(descriptor, app.metrics.snapshot, number, settings.workers) as control:
        app.admin.join(control.rpc)

        def ready() -> None:
            greet(app, app.admin.url)
            _ready()
            control.ready()

        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:

            async def stop() -> None:
                async with anyio.create_task_group() as group:
                    group.start_soon(control.until_gone, group.cancel_scope.cancel)
                    await _first(signals)
                    group.cancel_scope.cancel()
                _log.info("stopping")

            await app.serve(ready, stop)
    _log.info("stopped")


@contextmanager
def _loading() -> Iterator[None]:
    """While modules are loaded there is no garbage: looking for it takes a tenth of a start."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _say_nothing(_: "App", __: str | None) -> None:
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


def command_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = argparse.ArgumentParser(prog="gantry", description="One access point for every RocketMQ client.")
    commands = parser.add_subparsers(dest="command", required=True, parser_class=COMMAND_PARSER)
    serve = commands.add_parser("serve", help="serve clients until SIGTERM")
    serve.add_argument(
        "--listen", action="append", metavar="HOST:PORT", help="where clients connect; may be repeated (default :8080)"
    )
    serve.add_argument(
        "--workers", type=int, metavar="N", help="processes that serve the listeners together (default 1)"
    )
    # Which of them this is, and what connects it to its parent.
    serve.add_argument("--worker", type=_worker, help=argparse.SUPPRESS)
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
    demo.set_defaults(namesrv=None, workers=1, worker=None)
    doctor.register(commands)
    for command in (serve, demo):
        command.add_argument("--config", type=Path, metavar="FILE", help="TOML file with settings")
        command.add_argument(
            "--embedded-listen",
            metavar="HOST:PORT",
            help="where the embedded broker and its name server listen besides",
        )
        command.add_argument(
            "--admin", metavar="HOST:PORT", help="where the admin API listens, or off (default 127.0.0.1:8090)"
        )
        command.add_argument(
            "--log-level", choices=("debug", "info", "warning", "error"), help="least level that is logged"
        )
    add_commands(commands)
    for name, text in extensions.KNOWN.items():
        commands.add_parser(name, help=text, add_help=False)
    return parser


def _worker(text: str) -> tuple[int, int]:
    number, _, descriptor = text.partition(":")
    return int(number), int(descriptor)


def _flags(options: argparse.Namespace) -> dict[str, Any]:
    """What was given on the command line, by setting."""
    flags: dict[str, Any] = {"listen": options.listen, "log_level": options.log_level, "workers": options.workers}
    if options.command == "demo":
        flags["listen"] = options.listen or [_DEMO_LISTEN]
        flags["log_level"] = options.log_level or "warning"
    tables = {
        "cluster": {"namesrv": options.namesrv},
        "admin": {"listen": options.admin},
        "embedded": {"directory": options.embedded, "listen": options.embedded_listen},
    }
    if options.command == "demo":
        # Something to analyse, and soon.
        tables["traffic"] = {"directory": str(options.embedded / "traffic"), "interval": _DEMO_INTERVAL}
    return _given({**flags, **{name: _given(table) for name, table in tables.items()}})


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value not in (None, {})}


if __name__ == "__main__":
    sys.exit(main())
