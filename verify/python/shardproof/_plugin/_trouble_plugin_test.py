"""The pytest plugin: tests that hang, die, or leave behind what the next one should not find."""

import os
import signal
import subprocess
import time
from types import SimpleNamespace

import pytest

from shardproof._plugin._outcomes_plugin_test import command, environment, run, strays
from shardproof._plugin._run import Run

DEATHS = """
@pytest.mark.shardproof(deadline=40)
def test_raises_on_one(shardproof):
    if shardproof.rank == 1:
        raise ValueError("of one")
    dist.barrier()

@pytest.mark.shardproof(deadline=2)
def test_hangs(shardproof):
    if shardproof.rank == 1:
        time.sleep(600)
    dist.barrier()

@pytest.mark.shardproof
def test_killed(shardproof):
    print("before the end")
    if shardproof.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()

@pytest.mark.shardproof
def test_leaves_by_0(shardproof):
    if shardproof.rank == 0:
        os._exit(0)

@pytest.mark.shardproof
def test_sys_exit():
    sys.exit(0)

@pytest.mark.shardproof
def test_segfault(shardproof):
    if shardproof.rank == 1:
        import ctypes
        ctypes.string_at(0)

@pytest.mark.shardproof(deadline=2)
@pytest.mark.xfail(reason="waits for ever")
def test_hang_expected():
    time.sleep(600)

@pytest.mark.shardproof
def test_skips_on_one(shardproof):
    if shardproof.rank == 1:
        pytest.skip("not here")
    dist.barrier()

@pytest.fixture
def slow_on_0(shardproof):
    time.sleep(600 if shardproof.rank == 0 else 0)

@pytest.mark.shardproof
def test_raises_before_another_has_its_fixture(slow_on_0):
    raise ValueError("of rank 1")

@pytest.mark.shardproof
def test_kills_what_starts_ranks(shardproof):
    if shardproof.rank == 1:
        os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(600)

@pytest.mark.shardproof
def test_after():
    dist.barrier()
"""


@pytest.fixture(scope="module")
def deaths(tmp_path_factory):
    mark = f"SHARDPROOF_TEST_DEATHS={os.getpid()}"
    folder = tmp_path_factory.mktemp("deaths")
    ran = run(folder, DEATHS, SHARDPROOF_TEST_DEATHS=str(os.getpid()))
    assert strays(mark) == []
    return ran


def test_the_rank_that_raised_is_the_cause(deaths):
    words = ("rank 1: ValueError: of one", "rank 1 of 2 raised first", "rank 0 of 2",
             "did not end by itself after that", "in barrier")  # fmt: skip
    deaths.is_told("test_raises_on_one", "failure", *words)


def test_a_rank_that_waits_does_not_hide_the_cause(deaths):
    words = ("rank 1 of 2 skipped the test", "Skipped: not here", "rank 0 of 2", "in barrier")
    deaths.is_told("test_skips_on_one", "failure", *words)
    words = ("rank 1: ValueError: of rank 1", "rank 0 of 2 did not end by itself", "in slow_on_0")
    deaths.is_told("test_raises_before_another_has_its_fixture", "failure", *words)


def test_a_hang_is_told_by_rank_and_line(deaths):
    late = "did not end within 2 s: it was at test_it.py"
    words = (f"rank 1 of 2 {late}:16 in test_hangs", f"rank 0 of 2 {late}:17 in test_hangs, within")
    deaths.is_told("test_hangs", "failure", *words)


def test_a_death_is_told_by_rank(deaths):
    deaths.is_told("test_killed", "failure", "rank 1 of 2 was killed by SIGKILL")
    assert "before the end" in deaths.text
    deaths.is_told("test_leaves_by_0", "failure", "rank 0 of 2 ended with exit code 0")
    deaths.is_told("test_sys_exit", "failure", "SystemExit: 0")
    crashed = ("rank 1 of 2 was killed by SIGSEGV while", "test_it.py:39 in test_segfault, within")
    deaths.is_told("test_segfault", "failure", *crashed)


def test_xfail_holds_for_a_hang(deaths):
    deaths.is_told("test_hang_expected", "skipped", "waits for ever")


def test_the_next_test_has_new_ranks(deaths):
    deaths.is_told("test_after", "passed")
    assert "8 failed, 1 passed, 1 xfailed, 1 error" in deaths.text, deaths.text


def test_the_process_that_starts_ranks_is_replaced_too(deaths):
    words = "shardproof has no ranks for this test: the process that starts ranks ended while"
    deaths.is_told("test_kills_what_starts_ranks", "error", words)


CHANGES = """
pytestmark = pytest.mark.shardproof(deadline=30)
pids = []

def pid_is_the_first():
    pids.append(os.getpid())
    return len(set(pids)) == 1

def test_prints_10_mb(shardproof):
    for _ in range(10):
        print("x" * (1 << 20))
    print("the last line")
    if shardproof.rank == 1:
        raise ValueError("to be seen")

def test_changes(tmp_path):
    assert pid_is_the_first()
    os.environ["CHANGED"] = "yes"
    del os.environ["HOME"]
    os.environ["RANK"] = "7"
    os.chdir(tmp_path)
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    torch.set_grad_enabled(False)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(7)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.path.insert(0, "nowhere")
    dist.new_group([0, 1])
    os.close(0)
    sys.stdout.close()

def test_finds_nothing_changed(shardproof):
    assert pid_is_the_first()
    assert "CHANGED" not in os.environ and "HOME" in os.environ
    assert os.environ["RANK"] == str(shardproof.rank)
    assert os.getcwd() == os.path.dirname(__file__)
    assert torch.empty(1).dtype == torch.float32 and torch.empty(1).device.type == "cpu"
    assert torch.is_grad_enabled() and not torch.are_deterministic_algorithms_enabled()
    assert torch.get_num_threads() != 7
    assert signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN
    assert sys.path[0] != "nowhere"
    os.fstat(0)
    print("can print")

def test_ends_the_group():
    dist.destroy_process_group()

def test_has_a_group(shardproof):
    assert pid_is_the_first()
    assert dist.get_world_size() == 2

def test_poison(shardproof):
    shardproof.poison()
    assert not torch.equal(torch.empty(1 << 20), torch.zeros(1 << 20))

def test_leaves_a_thread():
    threading.Thread(target=time.sleep, args=(600,), daemon=True, name="left").start()

def test_has_no_thread():
    assert not pid_is_the_first() or len(pids) == 1
    assert "left" not in [each.name for each in threading.enumerate()]

def test_forks():
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
    dist_or_none = dist.get_rank()  # and the child comes out of the test, too

def test_leaves_a_process():
    import subprocess
    subprocess.Popen(["sleep", "600"], start_new_session=True)

def test_leaves_a_daemon():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)

def test_closes_descriptors():
    os.closerange(3, 1000)

def test_after():
    dist.barrier()
"""


@pytest.fixture(scope="module")
def changes(tmp_path_factory):
    mark = f"SHARDPROOF_TEST_CHANGES={os.getpid()}"
    folder = tmp_path_factory.mktemp("changes")
    ran = run(folder, CHANGES, SHARDPROOF_TEST_CHANGES=str(os.getpid()), HOME="/tmp")
    assert strays(mark) == []
    return ran


def test_much_output_is_cut(changes):
    changes.is_told("test_prints_10_mb", "failure", "rank 1: ValueError: to be seen")
    assert "bytes are left out]" in changes.text and "the last line" in changes.text
    assert len(changes.text) < 1 << 20


@pytest.mark.parametrize(
    "name",
    ["changes", "finds_nothing_changed", "ends_the_group", "has_a_group", "poison",
     "leaves_a_thread", "has_no_thread", "forks", "leaves_a_process", "leaves_a_daemon", "after"],
)  # fmt: skip
def test_what_a_test_changes_is_put_back(changes, name):
    changes.is_told(f"test_{name}", "passed")


def test_what_is_left_is_told(changes):
    assert "rank 0 left the thread left: the next test has new ranks" in changes.text, changes.text
    assert "rank 1 left the process sleep 600: the next test" in changes.text, changes.text


def test_a_rank_that_closes_everything_does_not_hang_the_run(changes):
    assert changes.cases["test_closes_descriptors"][0] in ("failure", "error")


ENDLESS = """
import pytest, time, subprocess, os

@pytest.mark.shardproof(deadline=300)
def test_waits(shardproof):
    subprocess.Popen(["sleep", "600"], start_new_session=True)
    shardproof.barrier()
    open("begun", "w").close()
    time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_process_stays_when_pytest_is_ended(tmp_path, number):
    (tmp_path / "test_it.py").write_text(ENDLESS)
    name = f"SHARDPROOF_TEST_ENDLESS_{number}"
    child = subprocess.Popen(
        command(), cwd=tmp_path, env=environment(**{name: str(os.getpid())}),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    wait_for((tmp_path / "begun").exists, 60)
    child.send_signal(number)
    child.communicate(timeout=20)
    assert child.returncode == (2 if number == signal.SIGINT else -number)
    wait_for(lambda: strays(f"{name}={os.getpid()}") == [], 10)


def wait_for(what, seconds):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_rank_that_ends_while_something_else_is_waited_for_is_noticed():
    ranks = [SimpleNamespace(rank=0, status=None), SimpleNamespace(rank=1, status=9)]
    one = Run(SimpleNamespace(wait=lambda ranks, seconds: []), SimpleNamespace(world=2), {})
    one._ranks = ranks
    one._hear(0)
    assert [part.status for part in one.parts] == [None, 9] and one.parts[1].at is not None
