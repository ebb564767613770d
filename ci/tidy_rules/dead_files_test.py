from tidy_rules import dead_files

TREE = {
    "src/CMakeLists.txt": "shardproof_module(NAME l FOLDERS load)\nadd_executable(b x_main.cc)\n",
    "layers.cmake": "shardproof_module(NAME far FOLDERS verify/far)\n",
    "verify/far/e.cc": "",
    "src/x_main.cc": '#include "src/load/a.h"\n',
    "src/load/a.h": "",
    "src/load/a.cc": "",
    "src/own/CMakeLists.txt": "shardproof_module(NAME own)\n",
    "src/own/c.cc": "",
    "src/tool.py": "import other\n",
    "src/other.py": "",
    "README.md": "Run src/tool.py.\n",
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
    assert not dead(tree_of, {"verify/fuzz/z_fuzz.cc": "", "ci/fuzz": script})


def test_a_comment_compiles_nothing(tree_of):
    listed = {"verify/CMakeLists.txt": "# old.cc is gone\n", "verify/old.cc": ""}
    assert dead(tree_of, listed) == ["verify/old.cc"]


def test_a_script_and_a_template_that_nothing_names(tree_of):
    assert dead(tree_of, {"src/alone.py": "", "src/page.j2": ""}) == ["src/alone.py", "src/page.j2"]


def test_subjects_are_found_by_their_folder(tree_of):
    by = {"verify/selftest/CMakeLists.txt": "file(GLOB subjects)"}
    assert not dead(tree_of, {**by, "fixtures/subjects/tie_broken.py": ""})
