import pytest

from tidy_rules import ids

PROPERTY = 'const PropertyRegistration kRegistration{{\n    .id = "loading.no_meta_left",\n}};\n'
BUG = 'const BugRegistration kRegistration{{\n    .id = "loading.bias_lost",\n}};\n'
FAULT = 'const FaultRegistration kRegistration{{.id = "file/read-only"}};\n'


def lines(tree_of, texts):
    return [f"{one.path}:{one.line}" for one in ids.check(tree_of(texts))]


def test_ids_that_are_paths(tree_of):
    texts = {
        "properties/loading/no_meta_left.cc": PROPERTY,
        "fixtures/bugs/loading_bias_lost.cc": BUG,
        "verify/faults/file_read_only.cc": FAULT,
        "fixtures/subjects/tie_broken.py": "",
        "fixtures/KINDS.md": "`loading.bias_lost`, `loading.no_meta_left`, `subject.tie_broken`\n",
        "verify/decisions/0001-first.md": "",
        "verify/decisions/0002-second.md": "as decision 0001 says\n",
    }
    assert not lines(tree_of, texts)


@pytest.mark.parametrize(
    ("path", "text", "line"),
    [
        ("properties/loading/meta.cc", PROPERTY, 2),
        ("properties/sharding/no_meta_left.cc", PROPERTY, 2),
        ("fixtures/bugs/loading_bias.cc", BUG, 2),
        ("verify/faults/file_readonly.cc", FAULT, 1),
        ("properties/loading/a.cc", "const PropertyRegistration kRegistration{{}};\n", 1),
    ],
)
def test_an_id_that_is_not_its_path(tree_of, path, text, line):
    assert lines(tree_of, {path: text}) == [f"{path}:{line}"]


def test_an_id_that_does_not_exist(tree_of):
    texts = {
        "properties/loading/no_meta_left.cc": PROPERTY,
        "fixtures/subjects/tie_broken.py": "",
        "a.md": "`loading.gone`\n`subject.gone`\n`loading.py` and `torch.nn` are no ids\n",
    }
    assert lines(tree_of, texts) == ["a.md:1", "a.md:2"]


def test_a_field_of_the_case_is_no_id(tree_of):
    texts = {
        "properties/loading/no_meta_left.cc": PROPERTY,
        "fixtures/schema/case.json": '{"keep": 1}',
        "a.md": "`loading.keep`\n",
    }
    assert not lines(tree_of, texts)


def test_decisions_without_a_gap(tree_of):
    texts = {"verify/decisions/0001-a.md": "", "verify/decisions/0003-b.md": ""}
    assert len(lines(tree_of, texts)) == 1


def test_a_decision_that_is_not_there(tree_of):
    texts = {"verify/decisions/0001-a.md": "", "src/a.h": "\n// Decision 0002 says why.\n"}
    assert lines(tree_of, texts) == ["src/a.h:2"]
