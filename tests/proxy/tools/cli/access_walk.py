"""A walk through `gantry users` and `gantry acl`, with the output that every store gives."""

from collections.abc import Callable
from pathlib import Path

import orjson

from tests.proxy.tools.cli.shell import Done

Run = Callable[..., Done]

_EXPLAIN = ("acl", "explain", "carol", "Sub", "Topic:orders-eu", "--from", "10.1.2.3")


def walk(run: Run, directory: Path) -> None:
    """Create, change, grant, list, explain, revoke and delete. run: runs a command with the store's options."""
    # A first try that failed may have left her.
    run("users", "delete", "carol", "--yes")
    secret = directory / "secret"
    secret.write_text("secret-of-carol\n")
    created = run("users", "create", "carol", "--json")
    [line] = created.objects
    assert (created.status, line["user"], line["done"], len(line["secret_key"])) == (0, "carol", "created", 32)
    assert run("users", "create", "carol").status == 1
    assert run("users", "update", "carol", "--secret-file", secret, "--role", "super").out == "user carol updated\n"
    shown = {"user": "carol", "role": "super", "groups": [], "enabled": True, "policies": 0, "expires": None}
    assert _user(run) == shown
    run("users", "update", "carol", "--role", "normal")
    assert run("users", "disable", "carol").status == 0
    assert _user(run)["enabled"] is False
    assert run(*_EXPLAIN).out.startswith("denied: the user is disabled")
    assert run("users", "enable", "carol").status == 0

    assert run("acl", "grant", "carol", "Pub,Sub", "Topic:orders*", "--from", "10.0.0.0/8").status == 0
    assert run("acl", "grant", "carol", "All", "Topic:orders-old", "--deny").status == 0
    policies = run("acl", "list", "carol", "--json").objects
    assert sorted(policies, key=lambda policy: policy["effect"]) == [
        _policy("allow", ["Pub", "Sub"], "Topic:orders*", ["10.0.0.0/8"]),
        _policy("deny", ["All"], "Topic:orders-old", []),
    ]
    assert _user(run)["policies"] == 2
    explained = run(*_EXPLAIN)
    assert explained.status == 0
    assert explained.out.startswith("allowed: allow Pub,Sub on Topic:orders* from 10.0.0.0/8 (")
    denied = run("acl", "explain", "carol", "Sub", "Topic:orders-old", "--from", "10.1.2.3")
    assert (denied.status, denied.out.partition(" (")[0]) == (1, "denied: deny Any on Topic:orders-old")
    assert run("acl", "explain", "carol", "Sub", "Topic:bills").out == "denied: no rule applies\n"

    assert run("acl", "revoke", "carol", "Topic:orders*", "--actions", "Sub").status == 0
    assert run("acl", "list", "carol", "--json").objects[0]["actions"] in (["Pub"], ["All"])
    assert run(*_EXPLAIN).out == "denied: no rule applies\n"
    assert run("acl", "revoke", "carol", "Topic:orders-old").status == 0
    missing = run("acl", "revoke", "carol", "Topic:orders-old")
    assert (missing.status, missing.err) == (1, "gantry: carol has no such policy on Topic:orders-old\n")
    assert run("acl", "grant", "carol", "Fly", "Topic:x").status == 1
    for words in (("users", "delete", "--yes"), ("users", "disable"), ("acl", "list")):
        refused = run(*words, "nobody-1")
        assert (refused.status, refused.err) == (1, "gantry: there is no user nobody-1\n")
    unconfirmed = run("users", "delete", "carol")
    assert (unconfirmed.status, "give --yes" in unconfirmed.err) == (2, True)
    assert run("users", "delete", "carol", "--yes").out == "user carol deleted\n"
    assert "carol" not in _users(run)
    assert run("acl", "explain", "carol", "Pub", "Topic:orders").out.startswith("denied: no user carol in ")


def _policy(effect: str, actions: list[str], resource: str, sources: list[str]) -> dict[str, object]:
    """Return a policy of carol as JSON."""
    policy = {"user": "carol", "effect": effect, "actions": actions, "resources": [resource]}
    return {**policy, "sources": sources, "default": False}


def _users(run: Run) -> dict[str, dict[str, object]]:
    """Return the users by name."""
    return {line["user"]: line for line in map(orjson.loads, run("users", "--json").out.splitlines())}


def _user(run: Run) -> dict[str, object]:
    return _users(run)["carol"]
