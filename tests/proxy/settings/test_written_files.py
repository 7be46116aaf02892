"""Users and rules in files that are still being written when they are read."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from proxy.auth.sources.files import FileSource
from proxy.auth.sources.own_file import parse
from proxy.traffic_rules.model import RuleFile
from proxy.traffic_rules.reloading import ReloadOutcome, RulesReloader

pytestmark = pytest.mark.anyio

# Without their last lines both are valid, and permit more.
USERS = """
[users.mallory]
secret = "secret-of-mallory"
role = "super"
enabled = false
"""
RULES = """
[[rule]]
name = "slow"
kind = "limit"
messages = 100
[[rule]]
name = "tenant"
kind = "namespace"
namespace = "a"
"""


async def _write_slowly(file: Path, text: str) -> None:
    """Write a file in place, line by line."""
    with file.open("w") as out:
        for line in text.splitlines(keepends=True):
            out.write(line)
            out.flush()
            await asyncio.sleep(0.05)


async def _during(writing: Awaitable[None], check: Callable[[], Awaitable[object]]) -> None:
    """Check a file again and again until it is written."""
    task = asyncio.ensure_future(writing)
    while not task.done():
        await check()
    await check()


async def test_a_users_file_without_its_end_is_not_used(tmp_path: Path) -> None:
    file = tmp_path / "users.toml"
    file.touch(0o600)
    file.write_text(USERS)
    users = FileSource("users file", file, parse)

    async def check() -> None:
        await users.refresh()
        assert not users.directory.users["mallory"].enabled

    await _during(_write_slowly(file, f"{USERS}[users.alice]\n"), check)
    assert set(users.directory.users) == {"mallory", "alice"}


async def test_rules_without_their_end_are_not_used(tmp_path: Path) -> None:
    """A connection that opened without its namespace would never have one."""
    file = tmp_path / "rules.toml"
    file.write_text(RULES)
    applied: list[RuleFile] = []
    rules = RulesReloader(file, applied.append)
    await _during(_write_slowly(file, RULES.replace("100", "200")), rules.reload)
    assert [[rule.name for rule in version.rule] for version in applied] == [["slow", "tenant"]] * 2


async def test_the_former_version_remains_while_a_file_is_written_for_long(tmp_path: Path) -> None:
    users_file, rules_file = tmp_path / "users.toml", tmp_path / "rules.toml"
    users_file.touch(0o600)
    users_file.write_text(USERS)
    rules_file.write_text(RULES)
    users, applied = FileSource("users file", users_file, parse), list[RuleFile]()
    rules = RulesReloader(rules_file, applied.append)
    lines = "\n" * 45
    writing = [asyncio.ensure_future(_write_slowly(file, lines)) for file in (users_file, rules_file)]
    await asyncio.sleep(0.05)
    changed, outcome = await asyncio.gather(users.refresh(), rules.reload())
    assert (changed, outcome) == (False, ReloadOutcome.FAILED)
    assert "still being written" in (users.error or "")
    assert "still being written" in (rules.error or "")
    assert (set(users.directory.users), len(applied)) == ({"mallory"}, 1)
    await asyncio.gather(*writing)
    assert (await users.refresh(), await rules.reload()) == (True, ReloadOutcome.LOADED)
    assert (users.error, rules.error) == (None, None)
