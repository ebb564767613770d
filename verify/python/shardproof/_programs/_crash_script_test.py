from shardproof._programs._crash_script import literal, operations_of


def test_the_crash_is_marked_and_what_is_far_from_it_left_out():
    told = {"operations": [f"write {i}" for i in range(200)], "after": 100}
    lines = operations_of(told).splitlines()
    assert lines[0] == "... 60 operations"
    assert lines[lines.index(">>> crash") - 1] == "write 99"
    assert lines[lines.index(">>> crash") + 1] == "write 100"
    assert lines[-1] == "... 81 operations"
    kept = [line for line in lines if line.startswith("write")]
    assert 60 + len(kept) + 81 == 200


def test_of_a_short_save_all_is_shown():
    told = {"operations": ["open", "write"], "after": 2}
    assert operations_of(told) == "open\nwrite\n>>> crash"


def test_a_literal_reads_back_as_what_it_was():
    told = {"path": 'a"b', "files": ["x"], "old": None}
    assert eval(literal(told)) == told
    assert literal(None) == "None"
