import pytest

from proxy.auth.decision import decide
from proxy.auth.policy import Grants, Role
from proxy.auth.sources.plain_acl import parse, parse_addresses
from remoting.permissions import Action, Permission, ResourceKind

# The file that RocketMQ 4.9 ships as conf/plain_acl.yml, with one more account.
FILE = """
globalWhiteRemoteAddresses:
  - 10.10.103.*
  - 192.168.0.*

accounts:
  - accessKey: RocketMQ
    secretKey: 12345678
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - topicA=DENY
      - topicB=PUB|SUB
      - topicC=SUB
    groupPerms:
      # the group should convert to retry topic
      - groupA=DENY
      - groupB=PUB|SUB
      - groupC=SUB

  - accessKey: rocketmq2
    secretKey: 12345678
    whiteRemoteAddress: 192.168.1.*
    # if it is admin, it could access all resources
    admin: true
"""


def allowed(kind: ResourceKind, name: str, action: Action) -> bool:
    user = parse([("plain_acl.yml", FILE)]).users["RocketMQ"]
    return decide(Grants(user.role, user.policies), Permission(kind, name, (action,)), "192.0.2.1").allowed


def test_permissions_are_those_of_the_file() -> None:
    topic, group = ResourceKind.TOPIC, ResourceKind.GROUP
    assert allowed(topic, "topicB", Action.PUB)
    assert allowed(topic, "topicB", Action.SUB)
    assert allowed(topic, "topicC", Action.SUB)
    assert not allowed(topic, "topicC", Action.PUB)
    assert not allowed(topic, "topicA", Action.PUB)
    assert not allowed(topic, "other", Action.SUB)
    assert allowed(group, "other", Action.SUB)
    assert not allowed(group, "groupA", Action.SUB)
    assert not allowed(topic, "topicB", Action.CREATE)
    assert not allowed(ResourceKind.CLUSTER, "", Action.GET)


def test_admins_and_white_addresses() -> None:
    directory = parse([("plain_acl.yml", FILE)])
    admin = directory.users["rocketmq2"]
    assert admin.role is Role.SUPER
    assert admin.exempt is not None
    assert admin.exempt.cover("192.168.1.77")
    assert not admin.exempt.cover("192.168.2.77")
    assert directory.exempt is not None
    assert directory.exempt.cover("10.10.103.1")
    assert not directory.exempt.cover("10.10.104.1")


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("*", ["1.2.3.4", "::1"], ["unix:"]),
        ("10.0.0.1", ["10.0.0.1"], ["10.0.0.2"]),
        ("10.0.0.1,10.0.0.2", ["10.0.0.2"], ["10.0.0.3"]),
        ("10.0.0.{1,3}", ["10.0.0.3"], ["10.0.0.2"]),
        ("10.0.1-2.*", ["10.0.2.9"], ["10.0.3.9"]),
        ("10.*.*.*", ["10.9.9.9"], ["11.0.0.0", "::1"]),
        ("fd00::1", ["fd00::1"], ["fd00::2"]),
    ],
)
def test_address_patterns_cover_their_addresses_only(pattern: str, inside: list[str], outside: list[str]) -> None:
    patterns = parse_addresses([pattern])
    assert all(map(patterns.cover, inside))
    assert not any(map(patterns.cover, outside))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("accounts: [", "line 1: not valid YAML"),
        ("- a", "needs the keys accounts"),
        ("accounts: {}\nglobalWhiteRemoteAddresses: x", "globalWhiteRemoteAddresses is not a list"),
        ("accounts:\n- accessKey: alice1", "account 1: accessKey and secretKey need"),
        ("accounts:\n- {accessKey: alice1, secretKey: secret1, topicPerms: [a]}", "NAME=PERMISSION"),
        ("accounts:\n- {accessKey: alice1, secretKey: secret1, topicPerms: [a=X]}", "a permission is DENY"),
        ("globalWhiteRemoteAddresses: [x.y]", "not an address pattern"),
        ("accounts:\n- {accessKey: alice1, secretKey: !!bool secret1}", "does not fit its tag"),
        ("accounts:\n- {accessKey: alice1, secretKey: !!int secret1}", "does not fit its tag"),
        ("accounts:\n- {accessKey: alice1, secretKey: 2020-99-99}", "no valid date"),
    ],
)
def test_errors_name_the_place(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=r"plain_acl\.yml|globalWhite") as raised:
        parse([("plain_acl.yml", text)])
    assert message in str(raised.value)
    assert "secret1" not in str(raised.value)
