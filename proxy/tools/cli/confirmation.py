"""Confirmation of a command that deletes or changes something, sends messages again, or moves offsets or clients."""

import argparse
import sys

from proxy.tools.cli.client import CommandError, UsageError


def confirm(options: argparse.Namespace, question: str) -> None:
    """Ask on the terminal unless --yes is given. Raises UsageError without a terminal, CommandError for a no."""
    if options.yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError(f"{question} There is no terminal to ask: give --yes")
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandError("nothing was changed")
