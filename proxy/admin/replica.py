"""The replica, with the admin services that belong to it."""

from typing import Protocol

from proxy.admin.http.service import Admin
from proxy.operations.replica import Replica


class AdminReplica(Replica, Protocol):
    """What the HTTP API, the Admin service and the live page work on."""

    admin: Admin
