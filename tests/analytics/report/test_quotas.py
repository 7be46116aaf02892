"""The page's sentences about a rules file."""

import pandas as pd
import pytest

from analytics.report.sentences import quota_summary
from proxy.traffic_rules.parsing import parse

FEW = '[[rule]]\nname = "few"\nkind = "limit"\nmessages = 2\nbytes = 9\nper = ["client"]\n'
ALL = '[[rule]]\nname = "all"\nkind = "limit"\nrequests = 2\n'
LISTENER = '[[rule]]\nname = "inner"\nkind = "limit"\nrequests = 2\nmatch = { listeners = ["inner"] }\n'
DENY = '[[rule]]\nname = "closed"\nkind = "deny"\n'


@pytest.mark.parametrize(
    ("rules", "over", "said"),
    [
        ("", [], "The rules file has no limit that records can evaluate."),
        (FEW + ALL, [], "Of 2 limits none would have been exceeded."),
        (
            FEW + ALL,
            [("few", "messages", "a", 0.5), ("few", "bytes", "a", 0.4), ("few", "messages", "b", 0.1)],
            "Of 2 limits 1 would have been exceeded, by 2 subjects. Most affected: a by few, 50 % of its messages"
            " refused (sends) or held (receives).",
        ),
        (
            ALL + DENY,
            [("all", "requests", "*", 0.25)],
            "Of 1 limit 1 would have been exceeded, by 1 subject. Most affected: all together by all, 25 % of its"
            " requests refused (sends) or held (receives). 1 rule of other kinds is not evaluated.",
        ),
        (
            LISTENER + DENY + DENY.replace("closed", "shut"),
            [],
            "The rules file has no limit that records can evaluate. inner is not evaluated: request records do not"
            " contain listeners. 2 rules of other kinds are not evaluated.",
        ),
    ],
)
def test_quota_summary_describes_a_rules_file(rules: str, over: list[tuple[str, str, str, float]], said: str) -> None:
    assert quota_summary(parse(rules), pd.DataFrame(over, columns=["rule", "unit", "subject", "over_share"])) == said
