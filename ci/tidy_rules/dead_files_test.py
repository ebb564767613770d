import pytest

from tidy_rules import dead_files

TREE = {
    "src/CMakeLists.txt": "include(../layers.cmake)\n"
    "shardproof_module(NAME l FOLDERS load)\nadd_executable(b x_main.cc)\n",
    "layers.cmake": "shardproof_module(NAME far FOLDERS verify/far)\n",
    "verify/far/e.cc": "",
    "src/x_main.cc": '#include "src/load/a.h"\n',
    "src/load/a.h": "",
    "src/load/a.cc": "",
    "src/own/CMakeLists.txt": "shardproof_module(NAME own)\n",
    "src/own/c.cc": "",
    "src/tool.py": "import other\n",
    "src/other.py": "",
    "ci/test": "#!/usr/bin/env bash\npython src/tool.py\n",
    "CONTRIBUTING.md": "`ci/test` must pass.\n",
}


def dead(tree_of, more):
    return [finding.path for finding in dead_files.check(tree_of(TREE | more))]


def test_what_is_used_is_not_found(tree_of):
    assert not dead(tree_of, {})


def test_a_header_that_nothing_includes(tree_of):
    assert dead(tree_of, {"src/load/b.h": "#include <string>\n"}) == ["src/load/b.h"]


def test_a_source_in_a_folder_that_nothing_compiles(tree_of):
    assert dead(tree_of, {"src/nowhere/d.cc": ""}) == ["src/nowhere/d.cc"]


def test_a_program_has_to_be_named(tree_of):
    assert dead(tree_of, {"src/load/y_main.cc": ""}) == ["src/load/y_main.cc"]


def test_a_source_may_be_named_by_a_script(tree_of):
    script = "#!/usr/bin/env bash\ng++ verify/fuzz/z_fuzz.cc\n"
    more = {
        "verify/fuzz/z_fuzz.cc": "",
        "ci/fuzz": script,
        "ci/test": "#!/usr/bin/env bash\nci/fuzz\npython src/tool.py\n",
    }
    assert not dead(tree_of, more)


def test_a_comment_compiles_nothing(tree_of):
    listed = {"verify/CMakeLists.txt": "# old.cc is gone\n", "verify/old.cc": ""}
    assert dead(tree_of, listed) == ["verify/old.cc"]


@pytest.mark.parametrize("path", ["src/alone.py", "src/page.j2", "src/sizes.json", "ci/alone"])
def test_what_nothing_names(tree_of, path):
    """A document does not use it, nor does a word that is its name without the ending."""
    documents = {"src/README.md": f"See {path}.\n", "src/use.cmake": "# \nset(alone page sizes)\n"}
    named = {"src/CMakeLists.txt": TREE["src/CMakeLists.txt"] + "include(use.cmake)\n"}
    assert dead(tree_of, {path: "#!/usr/bin/env bash\n", **documents, **named}) == [path]


def test_a_module_may_be_imported_or_run(tree_of):
    more = {"src/a.py": "from . import b\nfrom .c import D\n", "src/b.py": "", "src/c.py": ""}
    run = {"ci/test": "#!/usr/bin/env bash\npython src/tool.py\npython -m a\n"}
    assert not dead(tree_of, more | run)


def test_subjects_are_found_by_their_folder(tree_of):
    by = {"verify/selftest/CMakeLists.txt": "file(GLOB subjects)"}
    assert not dead(tree_of, {**by, "fixtures/subjects/tie_broken.py": ""})
