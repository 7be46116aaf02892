"""Changes of the users file by several processes, and the access to the file after a change."""

import asyncio
import os
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyio
import pytest

from proxy.auth.policy import Role
from proxy.auth.sources.own_file import parse
from proxy.auth.sources.users_editor import UsersEditor
from proxy.auth.stores.file_lock import locked
from proxy.auth.stores.store import NewUser, StoreError, UserChange
from proxy.auth.stores.users_file import UsersFileStore
from tests.proxy.auth.users import OWN_FILE, write

pytestmark = pytest.mark.anyio


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "users.toml", OWN_FILE)


def test_concurrent_changes_are_all_in_the_file(file: Path) -> None:
    names = [f"user-{number:02}" for number in range(40)]
    file.write_text("".join(f'[users.{name}]\nsecret = "a-secret"\n' for name in names))

    def disable(some: list[str]) -> None:
        rest = deque(some)
        while rest:
            try:
                asyncio.run(UsersFileStore(file).update(rest[0], UserChange(enabled=False)))
            except StoreError as error:
                # On a busy machine, one thread may wait for longer than the lock's timeout.
                if "try again" not in str(error):
                    raise
            else:
                rest.popleft()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(disable, [names[number::4] for number in range(4)]))
    users = parse([("users.toml", file.read_text())]).users
    assert [name for name in names if users[name].enabled] == []
    assert [each.name for each in file.parent.iterdir()] == ["users.toml"]


async def test_a_change_that_waits_too_long_fails(file: Path) -> None:
    begin = time.monotonic()
    async with locked(file):
        with pytest.raises(StoreError, match="others have been changing it"):
            async with locked(file, timeout=0.1):
                pass
    assert time.monotonic() - begin < 5
    async with locked(file, timeout=0.1) as exists:
        assert exists


async def test_a_waiting_change_does_not_block_and_locks_the_file_that_replaced_the_former(file: Path) -> None:
    got = anyio.Event()

    async def wait() -> None:
        async with locked(file):
            got.set()
            await anyio.sleep_forever()

    async with anyio.create_task_group() as group:
        async with locked(file):
            group.start_soon(wait)
            await anyio.sleep(0.05)
            write(file.with_name("new"), OWN_FILE).replace(file)
        with anyio.fail_after(20):
            await got.wait()
        with pytest.raises(StoreError):
            async with locked(file, timeout=0.05):
                pass
        group.cancel_scope.cancel()


async def test_a_refused_change_leaves_no_lock(file: Path) -> None:
    store = UsersFileStore(file)
    with pytest.raises(StoreError, match="already"):
        await store.create(NewUser("alice-1"))
    await store.create(NewUser("carol"))
    assert "carol" in (await store.directory()).users


def test_a_file_that_another_process_creates_meanwhile_remains(tmp_path: Path) -> None:
    file = tmp_path / "users.toml"
    editor = UsersEditor(file, new=True)
    editor.create_user("carol", Role.NORMAL, (), None)
    write(file, OWN_FILE)
    with pytest.raises(ValueError, match="created it meanwhile"):
        editor.save()
    assert file.read_text() == OWN_FILE
    assert [each.name for each in tmp_path.iterdir()] == ["users.toml"]


def test_a_new_file_is_only_for_its_owner(tmp_path: Path) -> None:
    file = tmp_path / "users.toml"
    asyncio.run(UsersFileStore(file).create(NewUser("carol")))
    assert file.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["users.toml"]


@pytest.mark.parametrize(("permitted", "mode"), [("owner and group", 0o640), ("group", 0o640), ("nothing", 0o600)])
def test_a_changed_file_keeps_owner_and_group_where_permitted(
    file: Path, monkeypatch: pytest.MonkeyPatch, permitted: str, mode: int
) -> None:
    file.chmod(0o640)
    given: list[tuple[int, int]] = []

    def give(_: int, user: int, group: int) -> None:
        if permitted == "nothing" or (permitted == "group" and user != -1):
            raise PermissionError
        given.append((user, group))

    former = file.stat()
    monkeypatch.setattr(os, "fchown", give)
    asyncio.run(UsersFileStore(file).update("alice-1", UserChange(enabled=False)))
    user = {"owner and group": [former.st_uid], "group": [-1], "nothing": []}[permitted]
    assert given == [(each, former.st_gid) for each in user]
    # Another group must not read the secrets.
    assert file.stat().st_mode & 0o777 == mode


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_a_change_by_root_leaves_the_file_to_its_owner(file: Path) -> None:
    os.chown(file, 12345, 54321)
    asyncio.run(UsersFileStore(file).update("alice-1", UserChange(enabled=False)))
    assert (file.stat().st_uid, file.stat().st_gid) == (12345, 54321)
