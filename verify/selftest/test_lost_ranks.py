"""A rank is killed, stops, or loses its launcher: the run ends in time and says which and where."""

import glob
import pathlib
import signal
import uuid

from command import CommandTest, checkpoint, command, processes_with, wait_until

FINISHES = "fault.every_rank_finishes"


class Endings(CommandTest):
    """Runs three ranks with a fault."""

    def findings(self, fault, code, deadline=20):
        document = self.judged("verify", "--checkpoint", checkpoint("llama-tied-small"),
                               "--world", 3, "--deadline", deadline, "--inject", fault,
                               code=code, timeout=50)  # fmt: skip
        return [one for one in document["findings"] if one["property"] == FINISHES]


class LostRank(Endings):
    labels = "selftest multi-rank timed"
    fixtures = "checkpoints"

    def lost_at(self, stage):
        lost = [one for one in self.findings(f"rank/kill@1@{stage}", 1) if one["kind"] == "lost"]
        self.assertIn([1], [one["ranks"] for one in lost])
        for finding in lost:
            self.assertEqual((finding["ranks"], finding["stage"]), ([1], stage))
            self.assertEqual(finding["class"], "infrastructure")
            self.assertIn("signal 9", finding["message"])

    def test_killed_at_built(self):
        self.lost_at("built")

    def test_killed_at_loaded(self):
        self.lost_at("loaded")

    def test_killed_at_sharded(self):
        self.lost_at("sharded")

    def test_killed_at_materialized(self):
        self.lost_at("materialized")

    def test_killed_at_ready(self):
        self.lost_at("ready")

    def test_killed_at_saved(self):
        self.lost_at("saved")

    def test_killed_at_restored(self):
        self.lost_at("restored")

    def test_the_other_ranks_say_what_they_were_doing(self):
        others = [one for one in self.findings("rank/kill@1@sharded", 1) if one["kind"] != "lost"]
        self.assertEqual(sorted({rank for one in others for rank in one["ranks"]}), [0, 2])

    def test_rank_zero_killed(self):
        lost = [one for one in self.findings("rank/kill@0@ready", 1) if one["kind"] == "lost"]
        self.assertIn([0], [one["ranks"] for one in lost])


class HungRank(Endings):
    labels = "selftest multi-rank timed"
    fixtures = "checkpoints"

    def hung(self, rank, stage):
        findings = self.findings(f"rank/stop@{rank}@{stage}", 4, deadline=3)
        hung = [one for one in findings if one["kind"] == "hang"]
        self.assertTrue(hung)
        for finding in hung:
            self.assertEqual((finding["ranks"], finding["stage"]), ([rank], stage))

    def test_stopped_at_ready(self):
        self.hung(1, "ready")

    def test_stopped_at_built(self):
        self.hung(2, "built")

    def test_rank_zero_stopped(self):
        self.hung(0, "loaded")


class OutOfMemory(CommandTest):
    labels = "selftest multi-rank timed"
    fixtures = "checkpoints"

    def test_the_kernels_kill_is_the_first_thing_told(self):
        done = self.shardproof("verify", "--checkpoint", checkpoint("llama-tied-small"), "--world",
                               3, "--inject", "memory/oom-kill@1@ready", timeout=50)  # fmt: skip
        if done.code == 77:
            self.skipTest(done.out.strip())
        self.assert_exit(done, 1)
        told = [line for line in done.out.splitlines() if line.startswith("FAIL fault.every_rank")]
        self.assertIn("on rank 1 of 3", told[0])
        self.assertIn("ended by signal 9 (out of memory: the kernel's OOM kill in its cgroup, "
                      "limit 16 MiB)", told[0])  # fmt: skip
        own = [line for line in pathlib.Path("/proc/self/cgroup").read_text("ascii").splitlines()]
        left = [path for line in own for path in
                glob.glob(f"/sys/fs/cgroup/memory{line.split(':')[2]}/shardproof-*")]  # fmt: skip
        self.assertEqual(left, [])


class CutOff(CommandTest):
    labels = "selftest multi-rank timed"
    fixtures = "checkpoints"

    def test_the_rank_that_nothing_reaches_is_named_by_all(self):
        done = self.shardproof("verify", "--checkpoint", checkpoint("llama-tied-small"), "--world",
                               4, "--inject", "net/blackhole@2@ready", "--deadline", 4, "--json",
                               "-", timeout=50)  # fmt: skip
        if done.code == 77:
            self.skipTest(done.out.strip())
        self.assert_exit(done, 1)
        told = [one for one in done.json()["findings"] if one["property"] == FINISHES]
        self.assertEqual([one["ranks"] for one in told], [[0, 1, 2, 3]])
        self.assertRegex(told[0]["message"], r"lost (rank 2|this rank) \(its connections with ")

    def test_it_needs_ranks_of_its_own(self):
        self.refused("verify", "--checkpoint", checkpoint("llama-tied-small"), "--world", 2,
                     "--transport", "sim", "--inject", "net/reset@1@ready",
                     names=["net/reset@1@ready", "expected transport gloo"])  # fmt: skip
        self.refused("verify", "--checkpoint", checkpoint("llama-tied-small"), "--world", 1,
                     "--inject", "net/reset@0@ready",
                     names=["one rank has no connections"])  # fmt: skip


class KilledLauncher(CommandTest):
    labels = "selftest multi-rank timed"
    fixtures = "checkpoints"

    def ends_with(self, number):
        """The ranks end with the launcher, also one that is stopped and would never look."""
        mark = uuid.uuid4().hex
        process = self.start([command(), "verify", "--checkpoint", checkpoint("llama-tied-small"),
                              "--world", 3, "--inject", "rank/stop@1@ready"], mark)  # fmt: skip
        self.addCleanup(process.communicate)
        self.addCleanup(self.end, mark)
        self.assertTrue(wait_until(lambda: len(processes_with(mark)) >= 4, 20), "no ranks started")
        process.send_signal(number)
        process.wait(timeout=20)
        self.assertTrue(wait_until(lambda: not processes_with(mark), 20),
                        f"left behind: {processes_with(mark)}")  # fmt: skip

    def test_killed_launcher_leaves_no_rank(self):
        self.ends_with(signal.SIGKILL)

    def test_interrupted_launcher_leaves_no_rank(self):
        self.ends_with(signal.SIGINT)

    def test_terminated_launcher_leaves_no_rank(self):
        self.ends_with(signal.SIGTERM)
