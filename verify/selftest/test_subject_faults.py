"""Faults in a framework: its ranks are killed, stop, leave and are slow, and what must hold then is
judged."""

from command import REPOSITORY, CommandTest, checkpoint

JUDGED = {
    "fault.ends_as_stated", "fault.every_fault_fires", "fault.nothing_leaks", "fault.nothing_lost",
    "fault.after_equals_undisturbed",
}  # fmt: skip


class Framework(CommandTest):
    """As stated: all of it passes, and was judged."""

    def ends_as_stated(self, subject, steps, *fault):
        document = self.judged(
            "verify", "--subject", REPOSITORY / "verify" / "subjects" / f"{subject}.py",
            "--checkpoint", checkpoint("llama-tied-small"), "--world", 2, "--steps", steps,
            "--deadline", 30, *fault, "--judge-faults", code=0, timeout=110,
        )  # fmt: skip
        passed = {one["id"] for one in document["properties"] if one["verdict"] == "pass"}
        self.assertEqual(JUDGED - passed, set())


class RanksOfFrameworks(Framework):
    labels = "selftest multi-rank fault timed framework"
    fixtures = "checkpoints"
    timeout_s = 120

    def test_fsdp2_killed_while_it_loads(self):
        self.ends_as_stated("fsdp2", 0, "--kill", "1@sharded")

    def test_fsdp2_stopped_while_it_trains(self):
        self.ends_as_stated("fsdp2", 4, "--stop", "0@stepped@2")


class MoreRanksOfFrameworks(Framework):
    labels = "selftest multi-rank fault timed nightly"
    fixtures = "checkpoints"
    timeout_s = 120

    def test_fsdp2_killed_before_a_collective_of_its_save(self):
        self.ends_as_stated("fsdp2", 4, "--inject", "rank/kill@0@#40")

    def test_ddp_left_by_a_rank(self):
        self.ends_as_stated("ddp", 0, "--inject", "rank/leave@1@built")

    def test_fsdp1_held_up(self):
        self.ends_as_stated("fsdp1", 4, "--inject", "rank/slow@0@saved")

    def test_fsdp1_with_a_slow_disk(self):
        self.ends_as_stated("fsdp1", 0, "--inject", "file/slow@0:1")


class FilesOfFrameworks(Framework):
    """The kernel refuses what a rank of a framework asks of its files."""

    labels = "selftest multi-rank fault timed framework"
    fixtures = "checkpoints"
    timeout_s = 120

    def test_fsdp2_finds_the_disk_full(self):
        self.ends_as_stated("fsdp2", 0, "--inject", "file/enospc@0:1")

    def test_ddp_cannot_rename(self):
        self.ends_as_stated("ddp", 0, "--inject", "file/rename@0:0")


class Refusals(CommandTest):
    labels = "selftest framework"
    fixtures = "checkpoints"

    def refuse(self, names, *fault):
        self.refused("verify", "--subject", REPOSITORY / "verify" / "subjects" / "ddp.py",
                     "--checkpoint", checkpoint("llama-tied-small"), "--world", 2, *fault,
                     names=names)  # fmt: skip

    def test_faults_of_seams_that_a_framework_has_not(self):
        self.refuse(["memory/tensor", "reference"], "--inject", "memory/tensor@0")

    def test_stages_of_calls(self):
        self.refuse(["file/enospc", "stage="], "--inject", "file/enospc@stage=saved")

    def test_ranks_that_are_not_there(self):
        self.refuse(["rank", "2"], "--kill", "2@sharded")
