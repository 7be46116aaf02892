"""The command line: `gantry serve`, `gantry demo`, `gantry doctor`, and the commands of `proxy.tools.cli`."""

import argparse
import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from proxy.tools import extensions, standard_streams
from proxy.tools.cert import arguments as cert
from proxy.tools.cli.command_parser import COMMAND_PARSER, command_first
from proxy.tools.cli.parser import COMMAND_NAMES, add_commands
from proxy.tools.doctor import arguments as doctor

if TYPE_CHECKING:
    from proxy.app import App
    from proxy.settings.loading import Sources
    from proxy.settings.model import Settings

_log = logging.getLogger("gantry")

# Defaults of `gantry demo`; the interval of traffic records is in seconds.
_DEMO_LISTEN = "127.0.0.1:8080"
_DEMO_DIRECTORY = Path("gantry-demo")
_DEMO_INTERVAL = 10.0
_COMMANDS = COMMAND_NAMES | {"serve", "demo", "doctor", "cert"} | extensions.KNOWN.keys()


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit status."""
    standard_streams.escape_unencodable()
    try:
        try:
            return _run(arguments)
        finally:
            standard_streams.flush()
    except BrokenPipeError:
        # The reader closed the pipe.
        standard_streams.discard()
        return 0
    except OSError as error:
        if not standard_streams.is_of_file(error):
            raise
        standard_streams.discard()
        print(f"gantry: standard output: {error.strerror}", file=sys.stderr)  # noqa: T201  # there is no other output
        return 1


def _run(arguments: list[str] | None) -> int:
    arguments = command_first(sys.argv[1:] if arguments is None else arguments, _COMMANDS)
    if arguments and arguments[0] in extensions.KNOWN:
        return _run_extension(arguments[0], arguments[1:])
    options = command_parser().parse_args(arguments)
    if options.command in COMMAND_NAMES:
        from proxy.tools.cli.run import run as run_command

        return run_command(options)
    if options.command == "cert":
        from proxy.tools.cert.command import run as run_cert

        return run_cert(options)
    if options.command == "doctor":
        from proxy.tools.doctor.command import run

        return run(options)
    with _sighup_ignored():
        return _run_server(options, arguments)


def _run_extension(name: str, arguments: list[str]) -> int:
    command = extensions.find(name)
    if command is None:
        message = f"gantry: {name} is not installed: pip install 'rocketmq-gantry[{name}]'"
        print(message, file=sys.stderr)  # noqa: T201  # logging is not set up yet
        return 2
    return command(arguments)


def _run_server(options: argparse.Namespace, arguments: list[str]) -> int:
    # Imported here: the other commands do not need these, and most take less time than the imports.
    with _without_garbage_collection():
        from protocol_negotiation.start_error import StartError
        from proxy.observability import logs
        from proxy.settings.data_directories import open_to_others
        from proxy.settings.loading import ConfigError, Sources, check_access, check_backend
        from proxy.settings.naming import reason
        from proxy.settings.trusted_files import changeable_by_others
        from proxy.tools.demo import welcome
        from proxy.workers.supervisor import TICKET_SECRET, supervise
        from proxy.workers.worker_settings import WorkerSources, check_workers, of_worker

    try:
        sources = Sources(options.config, _flags(options))
        settings = sources.load()
        check_backend(settings)
        check_access(settings)
        check_workers(settings)
    except ConfigError as error:
        for line in str(error).splitlines():
            print(f"gantry: {line}", file=sys.stderr)  # noqa: T201  # logging is not set up yet
        return 2
    logs.configure(settings.logs, settings.log_level, worker=None if options.worker is None else options.worker[0])
    # Data files hold messages, and names of topics and clients.
    os.umask(os.umask(0o077) | 0o077)
    if not settings.workers > 1 or options.worker is None:
        for text in (*open_to_others(settings), *changeable_by_others(settings)):
            _log.warning("%s", text)
    _raise_file_limit()
    try:
        if settings.workers > 1 and options.worker is None:
            return asyncio.run(supervise(settings, arguments))
        greet = welcome if options.command == "demo" else _no_greeting
        number, descriptor = options.worker or (0, None)
        if descriptor is not None:
            settings = of_worker(settings, number)
            sources = WorkerSources(sources.file, sources.flags, number)
        loop = {"use_uvloop": _has_uvloop()}
        secret = bytes.fromhex(os.environ.pop(TICKET_SECRET, "")) or None
        anyio.run(_serve, settings, sources, greet, number, descriptor, secret, backend_options=loop)
    except (OSError, StartError) as error:
        _log.error("%s", reason(error))
        return 1
    return 0


async def _serve(
    settings: "Settings",
    sources: "Sources",
    greet: Callable[["App", str | None], None],
    number: int,
    descriptor: int | None,
    ticket_secret: bytes | None,
) -> None:
    """Serve until SIGTERM or SIGINT; `descriptor` connects worker `number` to its parent, None without workers."""
    with _without_garbage_collection():
        from proxy.app import App
        from proxy.workers.control import controlled

    app = App(settings, sources, number, ticket_secret)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, app.rules.reload_soon)
    async with controlled(descriptor, app.metrics.snapshot, number, settings.workers) as control:
        app.admin.join(control.rpc)

        def ready() -> None:
            greet(app, app.admin.url)
            _ready(app)
            control.ready()

        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:

            async def stop() -> None:
                async with anyio.create_task_group() as group:
                    group.start_soon(control.until_supervisor_ends, group.cancel_scope.cancel)
                    await _wait_for_signal(signals)
                    group.cancel_scope.cancel()
                _log.info("stopping")

            await app.serve(ready, stop)
    _log.info("stopped")


@contextmanager
def _sighup_ignored() -> Iterator[None]:
    """Ignore SIGHUP until there is a handler: without one, a reload during the start would end the process."""
    former = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, former)


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Disable garbage collection while modules load: there is no garbage, and collections take 10 % of the start."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _raise_file_limit() -> None:
    """Raise the soft limit of open files to the hard one, as Go programs do.

    Many systems have a soft limit of 1,024, for programs with select(2): a few clients could take all of it.
    """
    # Windows does not have this module; the other commands run there.
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Some systems refuse an infinite limit.
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _no_greeting(_: "App", __: str | None) -> None:
    """Print nothing: `gantry serve` only logs."""


def _ready(app: "App") -> None:
    # Exclude the modules from garbage collection and collect less often: with 3,000 clients, a heartbeat takes 40 %
    # less CPU time.
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)
    report = app.admin_services.health.report("/readyz")
    if not report.ok:
        problems = [check for check in report.checks if check.status != "pass"]
        _log.warning("serving, but not ready: %s", "; ".join(f"{item.aspect}: {item.text}" for item in problems))
    else:
        _log.info("ready")


async def _wait_for_signal(signals: AsyncIterator[signal.Signals]) -> None:
    async for _ in signals:
        return


def _has_uvloop() -> bool:
    try:
        import uvloop  # noqa: F401
    except ImportError:
        return False
    return True


class _Version(argparse.Action):
    """Print the version and the kind of build. They are looked up only then: the metadata takes long to read."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        from proxy.core.build import build_kind

        print(f"gantry {version('rocketmq-gantry')} ({build_kind()})")  # noqa: T201  # a command's output
        parser.exit()


def command_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = COMMAND_PARSER(prog="gantry", description="One access point for every RocketMQ client.")
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(dest="command", required=True, parser_class=COMMAND_PARSER)
    serve, demo = _add_serve(commands), _add_demo(commands)
    doctor.register(commands)
    cert.register(commands)
    for command in (serve, demo):
        _add_common_options(command)
    add_commands(commands)
    for name, text in extensions.KNOWN.items():
        commands.add_parser(name, help=text, add_help=False)
    return parser


def _add_serve(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> argparse.ArgumentParser:
    serve = commands.add_parser(
        "serve",
        help="serve clients until SIGTERM",
        description="Serve clients until SIGTERM, before a cluster (--namesrv) or with an embedded broker (--embedded)."
        " Options override $GANTRY_ variables, and these the file of --config.",
    )
    serve.add_argument(
        "--listen", action="append", metavar="HOST:PORT", help="address for clients; may be repeated (default :8080)"
    )
    serve.add_argument("--workers", type=int, metavar="N", help="processes that share the listeners (default 1)")
    # Internal: the worker's number and the file descriptor of its connection to the parent.
    serve.add_argument("--worker", type=_worker, help=argparse.SUPPRESS)
    serve.add_argument("--namesrv", metavar="HOST:PORT[;…]", help="name servers of the cluster")
    serve.add_argument(
        "--embedded", type=Path, metavar="DIR", help="data directory of an embedded broker, instead of a cluster"
    )
    return serve


def _add_demo(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> argparse.ArgumentParser:
    demo = commands.add_parser(
        "demo",
        help="serve an embedded broker with sample topics, and print sample code",
        description="Serve an embedded broker with sample topics, and print code for each client to paste. Ends with "
        "SIGTERM or Ctrl-C; the data remain in its directory.",
    )
    demo.add_argument(
        "--listen",
        action="append",
        metavar="HOST:PORT",
        help=f"address for clients; may be repeated (default {_DEMO_LISTEN})",
    )
    demo.add_argument(
        "--dir",
        dest="embedded",
        type=Path,
        default=_DEMO_DIRECTORY,
        metavar="DIR",
        help=f"data directory (default {_DEMO_DIRECTORY})",
    )
    demo.set_defaults(namesrv=None, workers=1, worker=None)
    return demo


def _add_common_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--config", type=Path, metavar="FILE", help="TOML file with settings")
    command.add_argument(
        "--embedded-listen",
        metavar="HOST:PORT",
        help="additional address of the embedded broker and its name server",
    )
    command.add_argument(
        "--admin", metavar="HOST:PORT", help="address of the admin API, or off (default 127.0.0.1:8090)"
    )
    command.add_argument(
        "--anonymous",
        action="store_true",
        help="let everyone who reaches a listener do everything, if nothing else authenticates clients",
    )
    command.add_argument(
        "--log-level", choices=("debug", "info", "warning", "error"), help="minimum level of log lines"
    )


def _worker(text: str) -> tuple[int, int]:
    number, _, descriptor = text.partition(":")
    return int(number), int(descriptor)


def _flags(options: argparse.Namespace) -> dict[str, Any]:
    """Return the settings that were given on the command line, by key."""
    flags: dict[str, Any] = {"listen": options.listen, "log_level": options.log_level, "workers": options.workers}
    if options.command == "demo":
        flags["listen"] = options.listen or [_DEMO_LISTEN]
        flags["log_level"] = options.log_level or "warning"
    tables = {
        "cluster": {"namesrv": options.namesrv},
        "admin": {"listen": options.admin},
        "auth": {"anonymous": "allow" if options.anonymous else None},
        "embedded": {"directory": options.embedded, "listen": options.embedded_listen},
    }
    if options.command == "demo":
        # Records for `gantry analytics`, soon after the start.
        tables["traffic"] = {"directory": str(options.embedded / "traffic"), "interval": _DEMO_INTERVAL}
    return _without_empty({**flags, **{name: _without_empty(table) for name, table in tables.items()}})


def _without_empty(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value not in (None, {})}


if __name__ == "__main__":
    sys.exit(main())
