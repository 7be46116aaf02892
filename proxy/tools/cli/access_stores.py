"""The store of `gantry users` and `gantry acl`: a users file, or the brokers behind an access point."""

import argparse
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from proxy.auth.assembly import users_cipher
from proxy.auth.sources.source import AuthError
from proxy.auth.stores.brokers import BrokersStore
from proxy.auth.stores.store import Store, StoreError
from proxy.auth.stores.users_file import UsersFileStore
from proxy.tools.cli.access_arguments import FILE_VARIABLE, KEY_FILE_VARIABLE, KEY_VARIABLE
from proxy.tools.cli.client import Client, CommandError, connected
from proxy.tools.cli.parser import DEFAULT_ENDPOINT
from remoting.codes import RequestCode


@asynccontextmanager
async def opened(options: argparse.Namespace) -> AsyncIterator[Store]:
    """Yield the store that the options name. Raises CommandError, OSError."""
    try:
        file = users_file(options)
        if file is not None:
            key_file = options.users_key_file or os.environ.get(KEY_FILE_VARIABLE)
            cipher = users_cipher(os.environ.get(KEY_VARIABLE), None if key_file is None else Path(key_file))
            yield UsersFileStore(file, cipher)
            return
        async with connected(options) as client:
            yield _brokers(client)
    except (StoreError, AuthError) as error:
        raise CommandError(str(error)) from None


def users_file(options: argparse.Namespace) -> Path | None:
    """Return the users file; None if an endpoint is named, or no file."""
    if options.file is not None:
        file: Path = options.file
        return file
    named = options.endpoint != os.environ.get("GANTRY_ENDPOINT", DEFAULT_ENDPOINT) or options.profile
    variable = os.environ.get(FILE_VARIABLE)
    return None if named or variable is None else Path(variable)


def _brokers(client: Client) -> BrokersStore:
    async def ask(code: RequestCode, fields: Mapping[str, str], body: bytes) -> bytes:
        return (await client.ask(code, fields, body)).body

    return BrokersStore(ask)
