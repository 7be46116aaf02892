"""Handlers of tools' requests about users and ACLs (ACL 2.0): AUTH_CREATE_USER to AUTH_LIST_ACL.

The proxy decides about them before (proxy/auth): who may send them, and who may change super users. Error texts are
RocketMQ's.
"""

from dataclasses import replace
from ipaddress import ip_network

from proxy.embedded.broker.broker import Broker
from proxy.embedded.broker.errors import Refused
from proxy.embedded.broker.request import Answer, Request
from remoting import acl
from remoting import command as commands
from remoting.acl import USER_PREFIX, AclInfo, PolicyEntry, PolicyType, UserInfo, UserStatus, UserType
from remoting.codes import ResponseCode
from remoting.errors import InvalidRequest

_MAX_NAME_LENGTH = 128

# Users.


def create_user(broker: Broker, request: Request) -> Answer:
    """AUTH_CREATE_USER."""
    name = _username(request)
    user = UserInfo.parse(request.command.body)
    if not user.password.strip():
        raise _denied("password can not be blank")
    if broker.users.get(name) is not None:
        raise _denied("The user is existed")
    broker.users.put(
        UserInfo(name, user.password, user.user_type or UserType.NORMAL, user.user_status or UserStatus.ENABLE)
    )
    return broker.when_durable(commands.success())


def update_user(broker: Broker, request: Request) -> Answer:
    """AUTH_UPDATE_USER: change the values that the request has."""
    name = _username(request)
    change = UserInfo.parse(request.command.body)
    user = broker.users.get(name)
    if user is None:
        raise _denied("The user is not exist")
    broker.users.put(
        UserInfo(
            name,
            change.password if change.password.strip() else user.password,
            change.user_type or user.user_type,
            change.user_status or user.user_status,
        )
    )
    return broker.when_durable(commands.success())


def delete_user(broker: Broker, request: Request) -> Answer:
    """AUTH_DELETE_USER: delete a user with its ACL; an unknown one is ignored."""
    name = _username(request)
    if broker.users.get(name) is not None:
        with broker.store.transaction():
            broker.users.drop(name)
    return broker.when_durable(commands.success())


def get_user(broker: Broker, request: Request) -> Answer:
    """AUTH_GET_USER: without a body for an unknown user."""
    user = broker.users.get(_username(request))
    return commands.success(body=b"" if user is None else acl.encode(user.to_json()))


def list_users(broker: Broker, request: Request) -> Answer:
    """AUTH_LIST_USER: the users whose names contain the filter."""
    text = request.fields.get("filter", "")
    users = [user.to_json() for user in broker.users if text in user.username]
    return commands.success(body=acl.encode(users) if users else b"")


def _username(request: Request) -> str:
    name = request.fields.get("username", "").strip()
    if not name:
        raise InvalidRequest("The username is blank")
    if len(name) > _MAX_NAME_LENGTH or not name.isprintable():
        raise InvalidRequest(f"a username has at most {_MAX_NAME_LENGTH} printable characters")
    return name


# ACLs.


def put_acl(broker: Broker, request: Request) -> Answer:
    """AUTH_CREATE_ACL, AUTH_UPDATE_ACL: add entries to a subject's ACL, or replace those with the same resources."""
    change = AclInfo.parse(request.command.body)
    subject = change.subject or _subject(request)
    if not change.policies:
        raise _denied("The body of acl is null")
    for entries in change.policies.values():
        for entry in entries:
            _check_entry(entry)
    _check_subject(broker, subject)
    current = broker.users.get_acl(subject)
    policies = dict(current.policies) if current is not None else {}
    for kind, entries in change.policies.items():
        merged = {entry.resource: entry for entry in (*policies.get(kind, ()), *entries)}
        policies[kind] = tuple(merged.values())
    broker.users.put_acl(AclInfo(subject, policies))
    return broker.when_durable(commands.success())


def delete_acl(broker: Broker, request: Request) -> Answer:
    """AUTH_DELETE_ACL: delete a subject's ACL, or only the entry of a resource."""
    subject = _subject(request)
    _check_subject(broker, subject)
    current = broker.users.get_acl(subject)
    if current is None:
        raise _denied("The acl is not exist.")
    resource = request.fields.get("resource", "").strip()
    if not resource:
        broker.users.put_acl(AclInfo(subject, {}))
        return broker.when_durable(commands.success())
    text = request.fields.get("policyType", "").lower()
    kind = PolicyType.DEFAULT if text == PolicyType.DEFAULT.lower() else PolicyType.CUSTOM
    resource = acl.normalized_resource(resource)
    entries = tuple(entry for entry in current.policies.get(kind, ()) if entry.resource != resource)
    policies = {**current.policies, kind: entries}
    broker.users.put_acl(replace(current, policies={key: value for key, value in policies.items() if value}))
    return broker.when_durable(commands.success())


def get_acl(broker: Broker, request: Request) -> Answer:
    """AUTH_GET_ACL: without a body for a subject without an ACL."""
    subject = _subject(request)
    _check_subject(broker, subject)
    info = broker.users.get_acl(subject)
    return commands.success(body=b"" if info is None else acl.encode(info.to_json()))


def list_acls(broker: Broker, request: Request) -> Answer:
    """AUTH_LIST_ACL: the entries whose subjects and resources contain the filters."""
    subject, resource = request.fields.get("subjectFilter", ""), request.fields.get("resourceFilter", "")
    found = []
    for info in broker.users.acls():
        if subject not in info.subject:
            continue
        policies = {
            kind: kept
            for kind, entries in info.policies.items()
            if (kept := tuple(entry for entry in entries if resource in entry.resource))
        }
        if policies:
            found.append(AclInfo(info.subject, policies).to_json())
    return commands.success(body=acl.encode(found) if found else b"")


def _subject(request: Request) -> str:
    subject = request.fields.get("subject", "").strip()
    if not subject.startswith(USER_PREFIX) or subject == USER_PREFIX:
        raise _denied("The subject type is null.")
    return subject


def _check_subject(broker: Broker, subject: str) -> None:
    if not subject.startswith(USER_PREFIX):
        raise _denied("The subject type is null.")
    if broker.users.get(subject[len(USER_PREFIX) :]) is None:
        raise _denied("The subject is not exist.")


def _check_entry(entry: PolicyEntry) -> None:
    if not entry.actions:
        raise _denied("The actions is empty.")
    if "Any" in entry.actions:
        raise _denied("The actions can not be Any.")
    for text in entry.source_ips:
        try:
            ip_network(text, strict=False)
        except ValueError:
            raise _denied("The source ip is invalid.") from None


def _denied(message: str) -> Refused:
    return Refused(ResponseCode.NO_PERMISSION, message)
