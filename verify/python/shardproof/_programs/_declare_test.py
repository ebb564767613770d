import pytest

from shardproof._programs._declare import NoSubject, declare

RUN = "def run(case, observe):\n    for _ in range(case.steps):\n        pass\n"


@pytest.fixture
def declared(tmp_path, monkeypatch):
    """declared(text, beside={name: text}): what the file is found to say."""
    monkeypatch.delenv("PYTHONPATH", raising=False)

    def of(text, beside=None):
        for name, other in (beside or {}).items():
            (tmp_path / name).write_text(other)
        path = tmp_path / "subject.py"
        path.write_text(text)
        return declare(str(path))

    return of


def test_a_subject_that_says_nothing_can_do_all(declared):
    assert declared(RUN) == {
        "cannot": {}, "options": {}, "shows": {}, "reads": [], "builds": False, "adapts": False,
    }  # fmt: skip


def test_what_it_says_is_read_without_running_it(declared):
    said = declared(
        'raise SystemExit("ran")\n'
        'CANNOT = {"plain": "one way"}\nOPTIONS = {"save": ["dcp", "async"]}\n'
        'SHOWS = {"placements": ["shard"]}\nREADS = "rank 0"\n' + RUN
    )
    assert said == {
        "cannot": {"plain": "one way"},
        "options": {"save": ["dcp", "async"]},
        "shows": {"placements": ["shard"]},
        "reads": [""],
        "builds": False,
        "adapts": False,
    }


def test_one_that_asks_for_a_model_can_be_given_any(declared):
    assert declared("def run(case, observe):\n    case.build('meta')\n")["builds"]
    assert declared("def run(case, observe):\n    load(case.adapter)\n")["adapts"]


def test_who_reads_may_depend_on_an_option(declared):
    assert declared("READS = {'load=full': 'rank 0'}\n" + RUN)["reads"] == ["load=full"]


def test_one_that_never_asks_for_steps_does_not_train(declared):
    assert list(declared("def run(case, observe):\n    pass\n")["cannot"]) == ["train"]


def test_what_it_imports_from_beside_it_counts(declared):
    text = "import helper\nfrom helper import run\nOPTIONS = {'a': ['2']}\n"
    beside = {"helper.py": RUN + "OPTIONS = {'a': ['1'], 'b': ['x', 'y']}\n"}
    said = declared(text, beside)
    assert said["cannot"] == {}
    assert said["options"] == {"a": ["2"], "b": ["x", "y"]}  # its own comes first


def test_the_helpers_of_subjects_count(declared):
    run = "def run(case, observe):\n    job.run(case, observe, None)\n"
    assert declared("from shardproof.subjects import job\n" + run)["cannot"] == {}


def test_files_that_import_each_other_end(declared):
    assert declared("import helper\n" + RUN, {"helper.py": "import subject\n"})["cannot"] == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\n", r"expected def run"),
        ("def run(case):\n    pass\n", r":1: run takes \(case\)"),
        ("def run(case, observe:\n", "not Python"),
        (RUN + "CANNOT = ['plain']\n", ":4: CANNOT: expected a literal dict"),
        (RUN + "CANNOT = {'plain': ''}\n", "CANNOT"),
        (RUN + "CANNOT = dict(plain='no')\n", "CANNOT"),
        (RUN + "OPTIONS = {'save': []}\n", "OPTIONS"),
        (RUN + "OPTIONS = {'save': 'dcp'}\n", "OPTIONS"),
        (RUN + "READS = 'rank 1'\n", 'READS: expected "rank 0"'),
        (RUN + "SHOWS = {'tensors': ['a']}\n", "SHOWS: expected a literal dict of collectives"),
    ],
)
def test_what_is_no_subject_is_refused_with_a_reason(declared, text, said):
    with pytest.raises(NoSubject, match=said):
        declared(text)


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(NoSubject, match="cannot be read"):
        declare(str(tmp_path / "none.py"))


OPTIONS = 'OPTIONS = {"efficient": ["yes", "no"]}\n'


def test_the_plain_way_is_one_of_its_options(declared):
    assert declared(OPTIONS + 'PLAIN = {"efficient": "no"}\n' + RUN)["cannot"] == {}


@pytest.mark.parametrize("plain", ['{"efficient": "never"}', '{"fast": "no"}', '"no"', "dict(a=1)"])
def test_a_plain_way_that_is_none_of_its_options(declared, plain):
    with pytest.raises(NoSubject, match="PLAIN: expected"):
        declared(OPTIONS + f"PLAIN = {plain}\n" + RUN)
