import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.auth.decision import decide
from proxy.auth.policy import Grants, Pattern, Policy, Role, parse_actions, parse_networks
from remoting.permissions import Action, Permission, ResourceKind

TOPIC, GROUP, CLUSTER = ResourceKind.TOPIC, ResourceKind.GROUP, ResourceKind.CLUSTER
PUB_ORDERS = Permission(TOPIC, "orders", (Action.PUB,))


def policy(
    resource: str, actions: str = "Pub", allow: bool = True, sources: str = "", fallback: bool = False
) -> Policy:
    networks = parse_networks(filter(None, sources.split(",")))
    return Policy(Pattern.parse(resource), parse_actions(actions.split(",")), allow, networks, fallback, "test")


def allowed(policies: list[Policy], permission: Permission = PUB_ORDERS, host: str = "10.0.0.1") -> bool:
    return decide(Grants(Role.NORMAL, tuple(policies)), permission, host).allowed


def test_without_a_rule_everything_is_denied() -> None:
    assert not allowed([])
    assert decide(Grants(Role.NORMAL, ()), PUB_ORDERS, "").reason == "no rule applies"


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        (["Topic:orders"], True),
        (["Topic:order*"], True),
        (["Topic:*"], True),
        (["*"], True),
        (["Any:orders"], True),
        (["Topic:order"], False),
        (["Group:orders"], False),
        (["Topic:*", "!Topic:orders"], False),
        (["!Topic:*", "Topic:orders"], True),
        (["!Topic:orders", "Topic:orders"], False),
        (["Topic:ord*", "!Topic:orders*"], False),
        (["!Topic:ord*", "Topic:orders*"], True),
        (["!*", "Topic:*"], True),
        (["*", "!Topic:*"], False),
    ],
)
def test_the_most_specific_rule_decides_and_deny_wins_a_tie(rules: list[str], expected: bool) -> None:
    policies = [policy(rule.removeprefix("!"), allow=not rule.startswith("!")) for rule in rules]
    assert allowed(policies) is expected
    assert allowed(policies[::-1]) is expected


def test_actions_limit_a_rule_and_one_of_the_needed_actions_is_enough() -> None:
    either = Permission(TOPIC, "orders", (Action.SUB, Action.GET))
    assert not allowed([policy("Topic:orders", "Pub")], either)
    assert allowed([policy("Topic:orders", "Get")], either)
    assert allowed([policy("Topic:orders", "All")], either)


def test_a_missing_name_is_covered_by_patterns_for_all_names_only() -> None:
    unnamed = Permission(TOPIC, "", (Action.PUB,))
    assert not allowed([policy("Topic:orders"), policy("Topic:o*")], unnamed)
    assert allowed([policy("Topic:*")], unnamed)


@pytest.mark.parametrize(
    ("topic", "internal"),
    [
        ("SCHEDULE_TOPIC_XXXX", True),
        ("RMQ_SYS_TRANS_HALF_TOPIC", True),
        ("rmq_sys_wheel_timer", True),
        ("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", True),
        ("members", True),
        ("%LMQ%any", True),
        ("%LMQ%$rooms", True),
        ("%LMQ%$rooms$", True),
        ("%LMQ%$$room1", True),
        ("RMQ_SYS_TRACE_TOPIC", False),
        ("rmq_sys_TRACE_DATA_eu", False),
        ("TBW102", False),
        ("DefaultCluster_REPLY_TOPIC", False),
        ("%DLQ%g", False),
    ],
)
def test_only_rules_with_its_name_permit_an_internal_topic(topic: str, internal: bool) -> None:
    permission, sync_topics = Permission(TOPIC, topic, (Action.PUB,)), frozenset({"members"})

    def decided(*policies: Policy, role: Role = Role.NORMAL) -> bool:
        return decide(Grants(role, policies), permission, "10.0.0.1", sync_topics).allowed

    for general in ("*", "Topic:*", f"Topic:{topic[:-1]}*", f"Topic:{topic}*"):
        assert decided(policy(general, "All")) is not internal
        assert decided(policy(general, "All", fallback=True)) is not internal
        assert decided(policy(f"Topic:{topic}"), policy(general, "All"))
    assert not decided(policy(f"Topic:{topic}", allow=False), policy(f"Topic:{topic}"))
    assert decided(role=Role.SUPER)
    reads = Grants(Role.OPERATOR, (policy("Topic:*", "Get", allow=False),))
    assert not decide(reads, Permission(TOPIC, topic, (Action.GET,)), "10.0.0.1", sync_topics).allowed


def test_a_rule_with_sources_applies_to_their_addresses_only() -> None:
    rules = [policy("Topic:orders", sources="10.0.0.0/8,fd00::/8")]
    assert allowed(rules, host="10.1.2.3")
    assert allowed(rules, host="fd00::1")
    assert not allowed(rules, host="192.0.2.1")
    assert not allowed(rules, host="unix:")


def test_fallback_rules_apply_only_without_another_rule() -> None:
    default = policy("Topic:*", fallback=True)
    assert allowed([default])
    assert not allowed([default, policy("*", allow=False)])


def test_roles() -> None:
    create = Permission(TOPIC, "orders", (Action.CREATE,))
    listing = Permission(CLUSTER, "", (Action.GET, Action.LIST))
    assert decide(Grants(Role.SUPER, ()), create, "").allowed
    assert decide(Grants(Role.OPERATOR, ()), listing, "").allowed
    assert not decide(Grants(Role.OPERATOR, ()), create, "").allowed
    assert not decide(Grants(Role.OPERATOR, ()), PUB_ORDERS, "").allowed
    assert not decide(Grants(Role.NORMAL, ()), listing, "").allowed


def test_a_retry_topic_is_a_matter_of_its_group() -> None:
    rules = [policy("Group:billing", "Sub")]
    for action in (Action.PUB, Action.SUB):
        assert allowed(rules, Permission(TOPIC, "%RETRY%billing", (action,)))
        assert not allowed(rules, Permission(TOPIC, "%RETRY%orders", (action,)))
    assert not allowed([policy("Topic:*", "All")], Permission(TOPIC, "%RETRY%billing", (Action.SUB,)))


def test_a_retry_topic_that_may_belong_to_a_denied_group_needs_a_rule_that_names_its_own() -> None:
    denied = policy("Group:team-secret", "All", allow=False)
    for action in (Action.PUB, Action.SUB):
        permission = Permission(TOPIC, "%RETRY%team-secret_orders", (action,))
        for resource in ("Group:team-*", "Group:*", "*"):
            assert allowed([policy(resource, "All")], permission)
            assert not allowed([policy(resource, "All"), denied], permission)
            assert allowed([policy(resource, "All"), denied], Permission(TOPIC, "%RETRY%team-secrets_a", (action,)))
        assert allowed([policy("Group:team-secret_orders", "Sub"), denied], permission)
    assert not allowed([policy("*", "All"), denied], Permission(TOPIC, "%RETRY%team-secret", (Action.SUB,)))
    # The group itself is another one.
    assert allowed([policy("Group:team-*", "All"), denied], Permission(GROUP, "team-secret_orders", (Action.SUB,)))


@pytest.mark.parametrize("action", [Action.PUB, Action.SUB])
@pytest.mark.parametrize(
    ("name", "resources", "expected"),
    [
        ("%RETRY%g+t", ["Group:g"], False),
        ("%RETRY%g+t", ["Topic:t"], False),
        ("%RETRY%g+t", ["Group:g", "Topic:t"], True),
        ("%RETRY%g+t", ["Group:g+*", "Topic:t"], False),
        ("%RETRY%g+%RETRY%h", ["Group:g", "Topic:*"], False),
        ("%RETRY%g+%RETRY%h", ["Group:g", "Group:h"], True),
        ("%RETRY%g+rmq_sys_x", ["Group:g", "Topic:*"], False),
        ("%RETRY%g+%LMQ%$a$b", ["Group:g", "Topic:*"], False),
    ],
)
def test_a_pop_retry_topic_with_a_separator_of_its_own_needs_group_and_topic(
    name: str, resources: list[str], expected: bool, action: Action
) -> None:
    assert allowed([policy(resource, "All") for resource in resources], Permission(TOPIC, name, (action,))) is expected


@pytest.mark.parametrize("action", [Action.CREATE, Action.UPDATE, Action.DELETE])
def test_consumers_do_not_change_or_delete_their_retry_topic(action: Action) -> None:
    change = Permission(TOPIC, "%RETRY%billing", (action,))
    assert not allowed([policy("Group:billing", "Pub,Sub,Get,List")], change)
    assert allowed([policy("Group:billing", action.value)], change)


@pytest.mark.parametrize("text", ["orders", "Topic:", "Queue:a", "Topic:a*b", "Topic:*a", ""])
def test_invalid_patterns_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="resource"):
        Pattern.parse(text)


@given(
    st.lists(
        st.tuples(st.sampled_from(["*", "Topic:*", "Topic:a*", "Topic:ab*", "Topic:ab", "Group:ab"]), st.booleans())
    )
)
def test_decision_does_not_depend_on_the_order_of_rules(rules: list[tuple[str, bool]]) -> None:
    policies = [policy(resource, allow=allow) for resource, allow in rules]
    permission = Permission(TOPIC, "ab", (Action.PUB,))
    assert allowed(policies, permission) is allowed(sorted(policies, key=str), permission)


@pytest.mark.parametrize("text", ["*", "Topic:orders", "Topic:ord*", "Group:*", "Cluster:*"])
def test_patterns_are_written_as_they_are_read(text: str) -> None:
    assert str(Pattern.parse(text)) == text


@pytest.mark.parametrize(
    ("queue", "denied", "resource"),
    [
        ("%LMQ%$rooms$room1", "Topic:rooms", "Topic:rooms"),
        ("%LMQ%$rooms$x$other$room1", "Topic:rooms", "Topic:rooms"),
        ("%LMQ%$%RETRY%g$room1", "Group:g", "Group:g"),
        ("%LMQ%$rmq_sys_wheel_timer$x", None, "Topic:rmq_sys_wheel_timer"),
    ],
)
def test_a_lite_topic_is_a_matter_of_its_parent_topic(queue: str, denied: str | None, resource: str) -> None:
    permission = Permission(TOPIC, queue, (Action.SUB,))
    general = policy("*", "All")
    assert allowed([policy(resource, "All")], permission)
    assert not allowed([policy(f"Topic:{queue}", "All")], permission)
    assert allowed([general], permission) is (denied is not None)
    if denied is not None:
        assert not allowed([general, policy(denied, "All", allow=False)], permission)
