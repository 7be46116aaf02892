"""A parser of commands that takes options in any place."""

import argparse
import re
from collections.abc import Container
from difflib import get_close_matches
from typing import NoReturn

_UNKNOWN = re.compile(r"invalid choice: '([^']*)'")


class CommandParser(argparse.ArgumentParser):
    """A parser of one subcommand that accepts positional arguments before, between and after options.

    Python 3.11's accepts optional positional arguments only before options: not the body of `send TOPIC --tag T BODY`.
    """

    def parse_known_args(  # type: ignore[override]  # argparse's overloads differ in the type of a namespace
        self, args: list[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Do as ArgumentParser.parse_known_args does; report unknown arguments with this command's usage."""
        if self._inside:
            return super().parse_known_args(args, namespace)
        # argparse cannot intermix the arguments of a command with subcommands.
        parse = self.parse_known_intermixed_args if self._subparsers is None else super().parse_known_args
        self._inside = True
        try:
            options, unknown = parse(args, namespace)
        finally:
            self._inside = False
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return options, unknown

    # parse_known_intermixed_args calls parse_known_args.
    _inside = False

    def error(self, message: str) -> NoReturn:
        """Do as ArgumentParser.error does; name the choice that resembles an unknown one."""
        unknown = _UNKNOWN.search(message)
        if unknown is not None:
            choices = [str(choice) for action in self._actions for choice in action.choices or ()]
            for near in get_close_matches(unknown[1], choices, 1):
                message += f"; did you mean {near}?"
        super().error(message)


# The type of subparsers is invariant: they would not be those of argparse.ArgumentParser.
COMMAND_PARSER: type[argparse.ArgumentParser] = CommandParser

# Options of commands that take no value.
_FLAGS = frozenset(("--tls", "--insecure", "--json", "--anonymous", "--all", "--yes", "--follow"))


def command_first(arguments: list[str], commands: Container[str]) -> list[str]:
    """Return the arguments with the options before the command after it: `topics --json` for `--json topics`.

    An option's value may be the name of a command.
    """
    if not arguments or not arguments[0].startswith("--"):
        return arguments
    named = [position for position, argument in enumerate(arguments) if argument in commands]
    certain = [position for position in named if not _may_be_value(arguments[position - 1])]
    for position in (*certain, *named):
        return [arguments[position], *arguments[:position], *arguments[position + 1 :]]
    return arguments


def _may_be_value(before: str) -> bool:
    """Return whether an argument after this one may be an option's value."""
    return before.startswith("--") and "=" not in before and before not in _FLAGS
