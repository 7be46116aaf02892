"""`gantry context`: contexts in the profiles file, which only its owner can read."""

import argparse
import os
from pathlib import Path
from typing import Any

import tomlkit

from proxy.tools.cli.client import CommandError, UsageError, parse_endpoint
from proxy.tools.cli.output import Output
from proxy.tools.credentials import CURRENT, KEYS, CredentialsError, profiles_file, read_profiles

_HIDDEN = "token"
# Results of the actions that change contexts.
_DONE = {"use": "is current", "remove": "removed"}


async def run(options: argparse.Namespace) -> int:
    """Run the action. Raises CommandError, OSError."""
    file = profiles_file()
    content = _read(file)
    output = Output(options.json)
    match options.action:
        case "list":
            _list(content, output)
            return 0
        case "show":
            _show(options.name, _context(content, options.name), output)
            return 0
        case "add":
            current = _add(content, options)
            _write(file, content)
            _print_added(options.name, current, output)
            return 0
        case "use":
            _context(content, options.name)
            content[CURRENT] = options.name
        case "remove":
            _context(content, options.name)
            del content[options.name]
            if content.get(CURRENT) == options.name:
                del content[CURRENT]
    _write(file, content)
    output.done("context", options.name, _DONE[options.action])
    return 0


def _print_added(name: str, current: bool, output: Output) -> None:
    if output.json:
        output.dump({"context": name, "done": "saved", "current": current})
    else:
        output.done("context", name, "saved, and current" if current else "saved")


def _read(file: Path) -> tomlkit.TOMLDocument:
    if not file.exists():
        return tomlkit.document()
    try:
        # The same errors as of the other commands, which do not need the comments and the order of the file.
        read_profiles()
    except CredentialsError as error:
        raise UsageError(str(error)) from None
    return tomlkit.parse(file.read_text(encoding="utf-8"))


def _write(file: Path, content: tomlkit.TOMLDocument) -> None:
    if file.exists() and not file.is_file():
        raise CommandError(f"{file}: not a regular file")
    # A link stays: the file that it names is replaced.
    file = file.resolve()
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    unfinished = file.with_name(f".{file.name}.unfinished")
    unfinished.unlink(missing_ok=True)
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as out:
        out.write(tomlkit.dumps(content))
    unfinished.replace(file)


def _contexts(content: tomlkit.TOMLDocument) -> dict[str, Any]:
    return {name: value for name, value in sorted(content.items()) if isinstance(value, dict)}


def _context(content: tomlkit.TOMLDocument, name: str) -> dict[str, Any]:
    found = _contexts(content).get(name)
    if found is None:
        raise CommandError(f"there is no context {name}; `gantry context` lists them")
    return dict(found)


def _list(content: tomlkit.TOMLDocument, output: Output) -> None:
    current = content.get(CURRENT)
    rows = [
        (name, name == current, str(values.get("endpoint", "")), str(values.get("admin", "")))
        for name, values in _contexts(content).items()
    ]
    if output.json:
        for name, chosen, endpoint, admin in rows:
            output.dump({"context": name, "current": chosen, "endpoint": endpoint, "admin": admin})
        return
    if not rows:
        output.line("no contexts; `gantry context add NAME --endpoint HOST:PORT` adds one")
        return
    output.table(
        ("", "CONTEXT", "ENDPOINT", "ADMIN API"),
        [("*" if chosen else "", name, endpoint, admin) for name, chosen, endpoint, admin in rows],
    )


def _show(name: str, values: dict[str, Any], output: Output) -> None:
    shown = {key: "(hidden)" if key == _HIDDEN else value for key, value in values.items()}
    if output.json:
        output.dump({"context": name, **shown})
        return
    for key, value in shown.items():
        text = "yes" if value is True else str(value)
        output.line((f"{key:<16}", "dim"), text)


def _add(content: tomlkit.TOMLDocument, options: argparse.Namespace) -> bool:
    """Add the context; return whether that made it the current one."""
    if options.name == CURRENT:
        raise UsageError(f"{CURRENT} is no name of a context")
    if not options.name or not options.name.isprintable() or any(map(str.isspace, options.name)):
        raise UsageError("a context's name has no spaces and no control characters")
    if options.name in content and not options.force:
        raise CommandError(f"there is a context {options.name} already; --force replaces all its values")
    if options.endpoint is not None:
        parse_endpoint(options.endpoint)
    values = {key: getattr(options, key, None) for key in sorted(KEYS) if key != _HIDDEN}
    table = tomlkit.table()
    for key, value in values.items():
        if value:
            table[key] = str(value.resolve()) if isinstance(value, Path) else value
    if options.token_file is not None:
        table[_HIDDEN] = options.token_file.read_text(encoding="utf-8").strip()
    if not table:
        raise UsageError("give at least one of the context's options, such as --endpoint")
    content[options.name] = table
    if isinstance(content.get(CURRENT), str):
        return False
    # The first context is the current one. Keys outside of tables come first in TOML.
    former = dict(content.items())
    content.clear()
    content[CURRENT] = options.name
    content.update(former)
    return True
