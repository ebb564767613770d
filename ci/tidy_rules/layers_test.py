import pytest

from tidy_rules import layers

GRAPH = {"ci/layers.py": "pass\n"}


def test_src_that_includes_the_verifier_is_found(tree_of, places):
    text = '#include "src/core/result.h"\n#include "verify/case/case.h"\n'
    tree = tree_of(
        {**GRAPH, "src/load/a.cc": text, "src/core/result.h": "", "verify/case/case.h": ""}
    )
    assert places(layers.check(tree)) == ["src/load/a.cc:2"]


def test_an_oracle_that_comes_to_the_pipeline_by_way_of_others_is_found(tree_of):
    tree = tree_of(
        {
            **GRAPH,
            "verify/oracle/a.cc": '#include "verify/case/case.h"\n',
            "verify/case/case.h": '#include "src/model/spec.h"\n',
            "src/model/spec.h": "",
        }
    )
    (found,) = layers.check(tree)
    assert found.path == "verify/oracle/a.cc"
    assert "src/model/spec.h by way of verify/case/case.h" in found.what


@pytest.mark.parametrize(
    "line",
    [
        "#include <verify/case/case.h>",
        "#include <src/core/result.h>",
        "#include UP",
        "#import <verify/case/case.h>",
        '/* why */ #include "verify/case/case.h"',
    ],
)
def test_an_include_that_the_graph_does_not_show_is_found(tree_of, places, line):
    tree = tree_of({**GRAPH, "src/load/a.cc": f"#include <vector>\n{line}\n"})
    assert places(layers.check(tree)) == ["src/load/a.cc:2"]


def test_an_include_without_a_blank_is_read(tree_of, places):
    text = '#include"verify/case/case.h"\n'
    tree = tree_of({**GRAPH, "src/load/a.cc": text, "verify/case/case.h": ""})
    assert places(layers.check(tree)) == ["src/load/a.cc:1"]


def test_what_they_share_is_allowed(tree_of):
    texts = {
        "verify/oracle/a.cc": '#include "src/core/result.h"\n#include "verify/case/case.h"\n',
        "src/core/result.h": "",
        "verify/case/case.h": '#include "src/core/result.h"\n',
    }
    assert not list(layers.check(tree_of(GRAPH | texts)))


def test_without_the_graph_nothing_passes_for_looked_at(tree_of, places):
    assert places(layers.check(tree_of({"src/a.cc": ""}))) == ["ci/layers.py:1"]


def test_what_the_graph_finds_is_told(tree_of, places):
    script = 'import sys\nprint("src/a.h:7: not below\\na -> b -> a")\nsys.exit(1)\n'
    assert places(layers.check(tree_of({"ci/layers.py": script}))) == [
        "src/a.h:7",
        "ci/layers.py:1",
    ]


@pytest.mark.parametrize(
    "script", ["1 / 0", "import sys; sys.exit(1)", 'print("src/a.h:7: a circle")']
)
def test_a_graph_that_breaks_is_not_taken_for_clean(tree_of, script):
    with pytest.raises(RuntimeError, match="ci/layers.py"):
        list(layers.check(tree_of({"ci/layers.py": script})))
