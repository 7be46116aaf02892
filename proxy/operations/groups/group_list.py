"""Pages of consumer groups: filters and orders over all groups of the survey."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from proxy.operations import paging
from proxy.operations.groups.group_survey import GroupState, GroupStatus
from proxy.operations.groups.groups import (
    ConsumerGroupPage,
    ConsumerGroupSummary,
    GroupEntry,
    SurveyedGroups,
    with_groups_without_members,
)
from proxy.operations.paging import PageRequest, Place, cursor_of
from proxy.operations.snapshots import NamedPage

# With - the greatest first.
GroupSort = Literal[
    "name",
    "-name",
    "urgency",
    "-urgency",
    "members",
    "-members",
    "lag",
    "-lag",
    "lag_seconds",
    "-lag_seconds",
    "rate",
    "-rate",
    "retry_backlog",
    "-retry_backlog",
    "dead_letters",
    "-dead_letters",
    "last_consumed",
    "-last_consumed",
]
# The value of a sort key that is not known.
_UNKNOWN = -1
_VALUES: dict[str, Callable[[GroupStatus], Any]] = {
    # As the list that a cursor has.
    "urgency": lambda status: [status.urgency, _or_unknown(status.lag_messages)],
    "members": lambda status: status.members,
    "lag": lambda status: status.lag_messages,
    "lag_seconds": lambda status: status.lag_seconds,
    "rate": lambda status: status.rate,
    "retry_backlog": lambda status: status.retry_backlog,
    "dead_letters": lambda status: status.dead_letters,
    "last_consumed": lambda status: status.last_consumed,
}


@dataclass(frozen=True, slots=True)
class GroupQuery:
    """A filter of consumer groups; None matches all. attention: whether they need it. names: only these."""

    state: GroupState | None
    prefix: str | None
    topic: str | None
    skewed: bool | None
    attention: bool | None
    names: frozenset[str] | None

    def matches(self, group: GroupEntry, status: GroupStatus | None) -> bool:
        """Return whether a group matches."""
        if not group.name.startswith(self.prefix or "") or (self.names is not None and group.name not in self.names):
            return False
        if self.state is not None and (status is None or status.state is not self.state):
            return False
        if self.attention is not None and (status is None or (status.urgency > 0) is not self.attention):
            return False
        if self.topic is None and self.skewed is None:
            return True
        summary = group.consumer_summary(status)
        return (self.topic is None or self.topic in summary.topics) and self.skewed in (None, summary.skewed)


async def page_of(
    members: NamedPage[GroupEntry], surveyed: SurveyedGroups, query: GroupQuery, request: PageRequest
) -> ConsumerGroupPage:
    """Return a page of the groups with members here and of the surveyed ones. Raises BadCursor."""
    groups = with_groups_without_members(members, [*surveyed.statuses, *surveyed.left_out]).items

    def status(group: GroupEntry) -> GroupStatus | None:
        return surveyed.statuses.get(group.name)

    def summary(group: GroupEntry) -> ConsumerGroupSummary:
        return group.consumer_summary(status(group))

    def place(group: GroupEntry) -> Place:
        return Place(_value(request.order.key, status(group)), 0, group.name)

    found = await paging.cut(groups, lambda group: query.matches(group, status(group)), place, request)
    more = bool(found.items) and found.rest > len(found.items)
    return ConsumerGroupPage(
        items=[summary(group) for group in found.items],
        total=found.total,
        next=cursor_of(found.places[-1], request.order) if more else None,
        left_out=len(surveyed.left_out),
        unanswered=surveyed.unanswered,
    )


def _value(key: str, status: GroupStatus | None) -> Any:
    """Return the value of a sort key, of one type for each key."""
    if key == "name":
        return ""
    if status is None:
        return [_UNKNOWN] if key == "urgency" else _UNKNOWN
    return _or_unknown(_VALUES[key](status))


def _or_unknown(value: Any) -> Any:
    return _UNKNOWN if value is None else value
