"""Running of a subcommand: its function, its end, its exit status."""

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable
from importlib import import_module

from proxy.tools import standard_streams
from proxy.tools.cli.client import CommandError, UsageError
from proxy.tools.cli.output import printable
from remoting.errors import RemotingError

# Shells' status for a program that Ctrl-C ended.
_INTERRUPTED = 130
# The module of each subcommand, imported when it runs; its `run` returns the exit status. Those without a dot are here.
_MODULES = {
    "send": "sending",
    "receive": "receiving",
    "tail": "tailing",
    "topics": "topics",
    "groups": "groups",
    "users": "users",
    "acl": "acl",
    "bench": "proxy.tools.bench.command",
    "export": "exporting",
    "import": "importing",
    "message": "message",
    "trace": "trace",
    "dlq": "dlq",
    "clients": "connected_clients",
    "connections": "connected_clients",
    "drain": "connected_clients",
    "top": "top",
    "config": "config",
    "context": "context",
    "completion": "completion",
}


def run(options: argparse.Namespace) -> int:
    """Run the subcommand; return 0: done, 1: failed, 2: invalid usage, 130: Ctrl-C."""
    command: Callable[[argparse.Namespace], Awaitable[int]]
    name = _MODULES[options.command]
    command = import_module(name if "." in name else f"proxy.tools.cli.{name}").run
    try:
        return asyncio.run(_wait(command(options)))
    except UsageError as error:
        # A line for each mistake, all by the user.
        for line in str(error).splitlines():
            _complain(line)
        return error.status
    except CommandError as error:
        _complain(str(error))
        return error.status
    except RemotingError as error:
        _complain(f"{options.endpoint}: {error}")
        return 1
    except OSError as error:
        if isinstance(error, BrokenPipeError) or standard_streams.is_of_file(error):
            # They are of stdout.
            raise
        place = error.filename or getattr(options, "endpoint", None)
        _complain(f"{place}: {error.strerror or error}" if place else str(error.strerror or error))
        return 1
    except KeyboardInterrupt:
        # Ctrl-C is the normal end of a command that follows a topic.
        return 0 if getattr(options, "follow", False) else _INTERRUPTED


async def _wait(work: Awaitable[int]) -> int:
    return await work


def _complain(text: str) -> None:
    """Write a sentence to stderr. Servers' remarks may contain line breaks and control characters."""
    first, *_ = text.splitlines() or [""]
    sys.stderr.write(f"gantry: {printable(first)}\n")
