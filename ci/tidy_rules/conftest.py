"""Trees that tests make up."""

import pytest

from tidy_rules.tree import Tree


@pytest.fixture
def tree_of(tmp_path):
    """tree_of({path: text}): a Tree of just these files."""

    def make(texts):
        for path, text in texts.items():
            place = tmp_path / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
        return Tree(tmp_path)

    return make


@pytest.fixture
def places():
    """places(findings): "path:line" of each, in order."""
    return lambda findings: [f"{finding.path}:{finding.line}" for finding in findings]
