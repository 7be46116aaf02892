"""The decision about a permission. Pure.

The order is that of ACL 2.0: of the rules that apply, the one with the most specific pattern decides, and among equally
specific ones a deny rule. Fallback rules are consulted only if no other rule applies. Without any rule the permission
is denied.

Internal topics have the messages and memberships of all others, light message queues those of any topics. Only a rule
that names such a topic or queue permits it.
"""

from dataclasses import dataclass

from protocol_negotiation.networks import IpAddress
from proxy.auth.policy import Grants, Policy, Role, parse_address
from remoting.names import LMQ_PREFIX, OLD_POP_SEPARATOR, POP_SEPARATOR, RETRY_PREFIX, is_internal, parent_topic
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
    address, decision = parse_address(host), _NO_RULE
    for part in effective(permission):
        kind, name, actions = part
        applicable = [policy for policy in grants.policies if policy.applies(kind, name, actions, address)]
        internal = kind is ResourceKind.TOPIC and (
            # Of unknown topics, unless it has a parent topic.
            name in sync_topics or is_internal(name) or name.startswith(LMQ_PREFIX)
        )
        if internal:
            applicable = [policy for policy in applicable if not (policy.allow and policy.pattern.prefixed)]
        elif kind is not permission.kind:
            applicable += _denying_owner(grants, part, address)
        decision = _most_specific(applicable) or _without_rule(grants, actions, internal)
        if not decision.allowed:
            break
    return decision


def _without_rule(grants: Grants, actions: tuple[Action, ...], internal: bool) -> Decision:
    if grants.role is Role.OPERATOR and not _READING.isdisjoint(actions):
        return _OPERATOR
    return _NOT_NAMED if internal else _NO_RULE


def _most_specific(applicable: list[Policy]) -> Decision | None:
    """Return the decision of the rules that apply; None without any."""
    for fallback in (False, True):
        candidates = [policy for policy in applicable if policy.fallback is fallback]
        if candidates:
            policy = min(candidates, key=lambda policy: (*policy.pattern.generality, policy.allow))
            return Decision(policy.allow, f"{policy} ({policy.origin})", policy)
    return None


def _denying_owner(grants: Grants, retries: Permission, address: IpAddress | None) -> list[Policy]:
    """Return the rules that deny a group whose pop retry topic a retry topic may be: `g` of `%RETRY%g_topic`.

    retries: the permission on the group `g_topic`. Rules with a prefix need no look: those for `g` are for it, too.
    """
    return [
        policy
        for policy in grants.policies
        if not policy.allow
        and not policy.pattern.prefixed
        and retries.name.startswith(policy.pattern.name + OLD_POP_SEPARATOR)
        and policy.applies(ResourceKind.GROUP, policy.pattern.name, retries.actions, address)
    ]


_SUPER = Decision(True, "the role super has every permission")
_OPERATOR = Decision(True, "the role operator may read everything")
_NO_RULE = Decision(False, "no rule applies")
_NOT_NAMED = Decision(False, "no rule names this internal topic, and prefixes and default permissions do not cover it")


def effective(permission: Permission) -> tuple[Permission, ...]:
    """Return the permissions to decide about: a retry topic is a matter of its group, a lite topic of its parent topic.

    Its consumers may read it, and publish to it as in the official proxy: those of old clients send messages back
    themselves. Creating, changing or deleting it needs that action on the group. The retry topic of a group that pops
    a topic, with its name as brokers write it since 5.2 (`enableRetryTopicV2`), needs the topic as well.
    """
    kind, name, actions = permission
    if kind is not ResourceKind.TOPIC:
        return (permission,)
    if name.startswith(LMQ_PREFIX):
        parent = parent_topic(name)
        if parent is None:
            return (permission,)
        permission, name = Permission(kind, parent, actions), parent
    if not name.startswith(RETRY_PREFIX):
        return (permission,)
    others = tuple(action for action in actions if action not in (Action.PUB, Action.SUB))
    group, separator, topic = name.removeprefix(RETRY_PREFIX).partition(POP_SEPARATOR)
    owner = Permission(ResourceKind.GROUP, group, others if _CHANGES.issuperset(actions) else (Action.SUB, *others))
    if not separator:
        return (owner,)
    if topic.startswith(RETRY_PREFIX):
        kind, topic = ResourceKind.GROUP, topic.removeprefix(RETRY_PREFIX)
    return (owner, Permission(kind, topic, (Action.SUB,)))
