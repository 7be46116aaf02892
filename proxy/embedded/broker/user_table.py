"""The stored users and ACLs of ACL 2.0."""

from collections.abc import Iterator

from proxy.embedded.store import Table
from remoting import acl
from remoting.acl import USER_PREFIX, AclInfo, UserInfo, UserStatus, UserType


class Users:
    """Users and ACLs by name.

    The broker itself checks no request by them: requests reach it after the proxy's decision.
    version: number of changes since the start.
    """

    def __init__(self, users: Table, acls: Table) -> None:
        self._users = users
        self._acls = acls
        self.version = 0

    def get(self, name: str) -> UserInfo | None:
        """Return a user."""
        value = self._users.get(name.encode())
        return None if value is None else UserInfo.parse(value)

    def put(self, user: UserInfo) -> None:
        """Store a user. Raises StorageFull, StorageFailed."""
        self._users.put(user.username.encode(), acl.encode(user.to_json()))
        self.version += 1

    def drop(self, name: str) -> None:
        """Delete a user with its ACL. Raises StorageFull, StorageFailed."""
        self._users.delete(name.encode())
        self._acls.delete((USER_PREFIX + name).encode())
        self.version += 1

    def __iter__(self) -> Iterator[UserInfo]:
        return (UserInfo.parse(value) for _, value in self._users.items())

    def get_acl(self, subject: str) -> AclInfo | None:
        """Return the ACL of a subject."""
        value = self._acls.get(subject.encode())
        return None if value is None else AclInfo.parse(value)

    def put_acl(self, info: AclInfo) -> None:
        """Store an ACL; one without policies is deleted. Raises StorageFull, StorageFailed."""
        if info.policies:
            self._acls.put(info.subject.encode(), acl.encode(info.to_json()))
        else:
            self._acls.delete(info.subject.encode())
        self.version += 1

    def acls(self) -> Iterator[AclInfo]:
        """Yield the ACLs, by subject."""
        return (AclInfo.parse(value) for _, value in self._acls.items())

    def add_super_user(self, name: str, secret: str) -> None:
        """Create a user of type SUPER unless the name exists. Raises StorageFull, StorageFailed."""
        if self.get(name) is None:
            self.put(UserInfo(name, secret, UserType.SUPER, UserStatus.ENABLE))
