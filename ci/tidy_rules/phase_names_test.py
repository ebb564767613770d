import pytest

from tidy_rules import phase_names

TABLES = {
    "verify/case/phase.h": """
    PhaseFacts{.phase = Phase::kValues,
               .name = "values",
               .what = "It is loaded."},
    PhaseFacts{.phase = Phase::kTrain, .name = "train", .trains = true},
""",
    "src/stage/stage.h": """
    StageFacts{Stage::kReady, "ready", "All is there."},
    StageFacts{Stage::kSaved, "saved",
               "It is committed."},
""",
}


def found(tree_of, line, path="verify/engine/a.cc"):
    return [one.what for one in phase_names.check(tree_of(TABLES | {path: f"\n{line}\n"}))]


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ('if (phase.name() == std::string("values")) return;', "values"),
        ('const auto* phase = Find(evidence, "train");', "train"),
        ('if (record.name == "ready") return;', "ready"),
        ('for (const char* stage : {"built", "saved"}) Look(stage);', "saved"),
        ('return is_late ? "saved" : "";', "saved"),
    ],
)
def test_a_name_in_a_literal_is_found(tree_of, line, name):
    (what,) = found(tree_of, line)
    assert f'"{name}"' in what


@pytest.mark.parametrize(
    "line",
    [
        "if (phase.phase == Phase::kValues) return;",
        '// phase "values", at "ready"',
        'json = {{"values", 3}, {"saved", saved}};',
        'fields.Required("saved", saved);',
        'if (evidence.WhyCannot("train")) return;',
        '    .capabilities = {"save", "train"},',
        '    "what is "\n    "saved";',
        'Say("what was saved");',
    ],
)
def test_what_else_such_a_word_is(tree_of, line):
    assert not found(tree_of, line)


def test_tests_may_and_tables_must(tree_of, places):
    line = 'EXPECT_EQ(phase.name(), "values");'
    assert not found(tree_of, line, "verify/engine/a_test.cc")
    assert places(phase_names.check(tree_of(TABLES | {"src/stage/stage.h": "\n"}))) == [
        "src/stage/stage.h:1"
    ]
