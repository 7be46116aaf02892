import pytest

from remoting.tag_expression import tags_of


@pytest.mark.parametrize(
    ("expression", "tags"),
    [
        (None, None),
        ("", None),
        ("*", None),
        (" * ", {"*"}),
        ("a || b", {"a", "b"}),
        (" ", set()),
        ("|| ||", set()),
        ("|", {"|"}),
        ("|||", {"|"}),
    ],
)
def test_expression_has_tags(expression: str | None, tags: set[str] | None) -> None:
    assert tags_of(expression) == tags


@pytest.mark.parametrize("expression", ["||", "||||"])
def test_expression_of_separators_is_invalid(expression: str) -> None:
    with pytest.raises(ValueError, match="split error"):
        tags_of(expression)
