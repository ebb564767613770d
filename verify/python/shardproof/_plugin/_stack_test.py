from shardproof._plugin import _stack, _worker


def test_frames_of_the_plugin_are_not_shown():
    own, tests = (
        f'  File "{_worker.__file__}", line 3 in f\n',
        '  File "/a/b_test.py", line 1 in g\n',
    )
    assert _stack.shown(own + tests) == tests


def test_a_file_of_the_job_that_is_named_like_one_of_the_plugin_is_a_place():
    stack = "Current thread 0x0000000000000001 (most recent call first):\n"
    stack += f'  File "{_worker.__file__}", line 3 in f\n'
    stack += '  File "/a/data_worker.py", line 7 in load\n  File "/a/b_test.py", line 1 in g\n'
    assert "data_worker.py:7" in _stack.where(stack, 1, "/a/b_test.py")
