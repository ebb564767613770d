import pytest

from tidy_rules import links


def found(tree_of, line):
    files = {"docs/a.md": line, "docs/b.md": "", "src/core/result.h": "", "ci/test": ""}
    return [finding.what for finding in links.check(tree_of(files))]


@pytest.mark.parametrize(
    "line",
    [
        "[b](c.md)",
        "[b](../src/core/status.h)",
        "`src/core/status.h`",
        "`ci/tests -L unit`",
        "`src/nowhere/*.h`",
    ],
)
def test_what_leads_nowhere_is_found(tree_of, line):
    assert len(found(tree_of, line)) == 1


@pytest.mark.parametrize(
    "line",
    [
        "[b](b.md#part) and [c](https://example.org/x.md) and [d](#here)",
        "`src/core/result.h:12`, `src/core/`, `ci/test -L unit`",
        "`src/*/result.h`, `src/<name>/result.h`, `src/{core,text}/result.h`",
        "`file/enospc` is no path, since no folder has that name",
        "`src/core/NAME.h` stands for many",
        "```\nsrc/core/status.h `src/x.h`\n```",
    ],
)
def test_what_leads_somewhere_or_is_no_path_is_not(tree_of, line):
    assert not found(tree_of, line)
