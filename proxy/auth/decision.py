"""The decision about a permission. Pure.

The order is that of ACL 2.0: of the rules that apply, the one with the most specific pattern decides, and among equally
specific ones a deny rule. Fallback rules are consulted only if no other rule applies. Without any rule the permission
is denied.

Internal topics have the messages and memberships of all others, light message queues those of any topics. Only a rule
that names such a topic or queue permits it.
"""

from dataclasses import dataclass

from proxy.auth.policy import Grants, Policy, Role, parse_address
from remoting.names import LMQ_PREFIX, RETRY_PREFIX, is_internal, parent_topic
from remoting.permissions import Action, Permission, ResourceKind

_READING = frozenset({Action.GET, Action.LIST})
_CHANGES = frozenset({Action.CREATE, Action.UPDATE, Action.DELETE})


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a permission is granted. policy: the rule that decided; None if the role decided, or no rule applied."""

    allowed: bool
    reason: str
    policy: Policy | None = None


def decide(grants: Grants, permission: Permission, host: str, sync_topics: frozenset[str] = frozenset()) -> Decision:
    """Return whether a principal with these grants, at this address, has a permission.

    sync_topics: internal topics besides those of brokers.
    """
    if grants.role is Role.SUPER:
        return _SUPER
    kind, name, actions = effective(permission)
    address = parse_address(host)
    applicable = [policy for policy in grants.policies if policy.applies(kind, name, actions, address)]
    internal = kind is ResourceKind.TOPIC and (
        # Of unknown topics, unless it has a parent topic.
        name in sync_topics or is_internal(name) or name.startswith(LMQ_PREFIX)
    )
    if internal:
        applicable = [policy for policy in applicable if not (policy.allow and policy.pattern.prefixed)]
    for fallback in (False, True):
        candidates = [policy for policy in applicable if policy.fallback is fallback]
        if candidates:
            policy = min(candidates, key=lambda policy: (*policy.pattern.generality, policy.allow))
            return Decision(policy.allow, f"{policy} ({policy.origin})", policy)
    if grants.role is Role.OPERATOR and not _READING.isdisjoint(actions):
        return _OPERATOR
    return _NOT_NAMED if internal else _NO_RULE


_SUPER = Decision(True, "the role super has every permission")
_OPERATOR = Decision(True, "the role operator may read everything")
_NO_RULE = Decision(False, "no rule applies")
_NOT_NAMED = Decision(False, "no rule names this internal topic, and prefixes and default permissions do not cover it")


def effective(permission: Permission) -> Permission:
    """Return the permission to decide about: a retry topic is a matter of its group, a lite topic of its parent topic.

    Its consumers may read it, and publish to it as in the official proxy: those of old clients send messages back
    themselves. Creating, changing or deleting it needs that action on the group.
    """
    kind, name, actions = permission
    if kind is not ResourceKind.TOPIC:
        return permission
    if name.startswith(LMQ_PREFIX):
        parent = parent_topic(name)
        if parent is None:
            return permission
        permission, name = Permission(kind, parent, actions), parent
    if not name.startswith(RETRY_PREFIX):
        return permission
    others = tuple(action for action in actions if action not in (Action.PUB, Action.SUB))
    group = name.removeprefix(RETRY_PREFIX)
    return Permission(ResourceKind.GROUP, group, others if _CHANGES.issuperset(actions) else (Action.SUB, *others))
