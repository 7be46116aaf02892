"""Parser of the rules file, a TOML document. Pure."""

import tomllib
from typing import Any

from pydantic import ValidationError

from protocol_negotiation.start_error import StartError
from proxy.settings.fault_text import fault_text
from proxy.traffic_rules.model import RuleFile

_KINDS = frozenset({"allow", "deny", "limit", "connections", "maintenance", "mirror", "fault", "namespace", "alias"})


class RulesError(StartError):
    """An invalid rules file. The message has one line per mistake, with the rule's name and the key."""


def parse(text: str) -> RuleFile:
    """Parse and validate the text of a rules file. Raises RulesError that lists every mistake."""
    try:
        data = tomllib.loads(text)
    except RecursionError:
        raise RulesError("nested too deeply") from None
    except ValueError as error:
        # Invalid TOML, or a number with more digits than Python converts.
        raise RulesError(str(error)) from None
    try:
        return RuleFile.model_validate(data)
    except ValidationError as error:
        raise RulesError("\n".join(_describe(mistake, data) for mistake in error.errors())) from None


def _describe(mistake: Any, data: dict[str, Any]) -> str:
    """Describe one of pydantic's errors, with the rule's name and the key."""
    reason = {
        "extra_forbidden": "unknown key",
        "missing": "required",
        "union_tag_not_found": f"kind: required, one of {', '.join(sorted(_KINDS))}",
    }.get(mistake["type"]) or fault_text(mistake)
    location = list(mistake["loc"])
    rule = ""
    if location[:1] == ["rule"] and len(location) > 1 and isinstance(location[1], int):
        rule = f"rule {_rule_name(data, location[1])}"
        # pydantic puts the kind between the rule's index and the key.
        location = location[3:] if len(location) > 2 and location[2] in _KINDS else location[2:]
    parts = (rule, ".".join(map(str, location)), reason)
    return ": ".join(filter(None, (", ".join(filter(None, parts[:2])), parts[2])))


def _rule_name(data: dict[str, Any], index: int) -> str:
    rule = data["rule"][index]
    name = rule.get("name") if isinstance(rule, dict) else None
    return repr(name) if isinstance(name, str) else f"no. {index + 1}"
