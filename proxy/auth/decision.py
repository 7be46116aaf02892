"""The decision about a permission. Pure.

The order is that of ACL 2.0: of the rules that apply, the one with the most specific pattern decides, and among equally
specific ones a deny rule. Fallback rules are consulted only if no other rule applies. Without any rule the permission
is denied.
"""

from dataclasses import dataclass

from proxy.auth.policy import Grants, Policy, Role, parse_address
from remoting.names import RETRY_PREFIX
from remoting.permissions import Action, Permission, ResourceKind

_READING = frozenset({Action.GET, Action.LIST})
_CHANGES = frozenset({Action.CREATE, Action.UPDATE, Action.DELETE})


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a permission is granted. policy: the rule that decided; None if the role decided, or no rule applied."""

    allowed: bool
    reason: str
    policy: Policy | None = None


def decide(grants: Grants, permission: Permission, host: str) -> Decision:
    """Return whether a principal with these grants, at this address, has a permission."""
    if grants.role is Role.SUPER:
        return _SUPER
    kind, name, actions = effective(permission)
    address = parse_address(host)
    applicable = [policy for policy in grants.policies if policy.applies(kind, name, actions, address)]
    for fallback in (False, True):
        candidates = [policy for policy in applicable if policy.fallback is fallback]
        if candidates:
            policy = min(candidates, key=lambda policy: (*policy.pattern.generality, policy.allow))
            return Decision(policy.allow, f"{policy} ({policy.origin})", policy)
    if grants.role is Role.OPERATOR and not _READING.isdisjoint(actions):
        return _OPERATOR
    return _NO_RULE


_SUPER = Decision(True, "the role super has every permission")
_OPERATOR = Decision(True, "the role operator may read everything")
_NO_RULE = Decision(False, "no rule applies")


def effective(permission: Permission) -> Permission:
    """Return the permission to decide about: a retry topic is a matter of its group.

    Its consumers may read it, and publish to it as in the official proxy: those of old clients send messages back
    themselves. Whoever creates, changes or deletes it needs that action on the group.
    """
    kind, name, actions = permission
    if kind is not ResourceKind.TOPIC or not name.startswith(RETRY_PREFIX):
        return permission
    others = tuple(action for action in actions if action not in (Action.PUB, Action.SUB))
    group = name.removeprefix(RETRY_PREFIX)
    return Permission(ResourceKind.GROUP, group, others if _CHANGES.issuperset(actions) else (Action.SUB, *others))
