"""A full disk while saving: a failure, the previous checkpoint intact, nothing half-written."""

import os
import subprocess

from command import CommandTest, checkpoint, snapshot

SOURCE = "llama-tied-small"
SOURCE_BYTES = 500_000


class FullDisk(CommandTest):
    labels = "selftest multi-rank"
    fixtures = "checkpoints"

    def small_disk(self, size_bytes):
        """A file system of this size, mounted in the test's directory; else skips."""
        directory = self.dir / "disk"
        directory.mkdir()
        words = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(directory)]
        try:
            done = subprocess.run(words, capture_output=True, text=True)
        except FileNotFoundError:
            self.skipTest("a full disk needs mount, which is not installed")
        if done.returncode:
            self.skipTest(f"a full disk needs a file system of its own: {done.stderr.strip()}")
        self.addCleanup(subprocess.run, ["umount", str(directory)], check=True)
        return directory

    def save(self, target, *more, world=2):
        return self.shardproof("verify", "--checkpoint", checkpoint(SOURCE), "--world", world,
                               "--save-to", target, *more)  # fmt: skip

    def assert_intact(self, directory, before):
        self.assertEqual(snapshot(directory), before)
        self.assertEqual([name for name in os.listdir(directory.parent) if ".saving" in name], [])
        self.assert_exit(self.shardproof("compare", checkpoint(SOURCE), directory), 0)

    def test_full_disk_keeps_the_previous_checkpoint(self):
        disk = self.small_disk(int(SOURCE_BYTES * 1.6))
        self.assert_exit(self.save(disk / "saved"), 0)
        before = snapshot(disk / "saved")
        done = self.save(disk / "saved")
        self.assert_exit(done, 1)
        self.assertIn("No space left on device", done.out)
        self.assert_intact(disk / "saved", before)

    def test_disk_too_small_for_any_checkpoint_is_left_empty(self):
        disk = self.small_disk(SOURCE_BYTES // 2)
        self.assert_exit(self.save(disk / "saved"), 1)
        self.assertEqual(snapshot(disk), {})

    def test_full_disk_under_the_report_is_bad_input(self):
        disk = self.small_disk(64 << 10)
        done = self.shardproof("verify", "--checkpoint", checkpoint(SOURCE), "--world", 2,
                               "--report", disk / "report")  # fmt: skip
        self.assert_exit(done, 2)
        self.assertEqual(len(done.err.splitlines()), 1, str(done))
        self.assertIn("report", done.err)

    def at_write(self, where):
        """The n-th write of one rank finds the disk full; the first save stays."""
        self.assert_exit(self.save("saved"), 0)
        before = snapshot(self.dir / "saved")
        done = self.save("saved", "--inject", f"file/enospc@{where}")
        self.assert_exit(done, 1)
        self.assertIn("No space left on device", done.out)
        self.assert_intact(self.dir / "saved", before)

    def test_first_write_of_rank_0(self):
        self.at_write("0:0")

    def test_first_write_of_rank_1(self):
        self.at_write("0:1")

    def test_second_write_of_rank_0(self):
        self.at_write("1:0")

    def test_second_write_of_rank_1(self):
        self.at_write("1:1")

    def test_fifth_write_of_rank_0(self):
        self.at_write("4:0")

    def test_without_a_previous_checkpoint_nothing_is_left(self):
        self.assert_exit(self.save("saved", "--inject", "file/enospc@2"), 1)
        self.assertEqual(snapshot(self.dir), {})

    def test_a_second_save_replaces_the_first(self):
        self.assert_exit(self.save("saved"), 0)
        self.assert_exit(self.save("saved", world=3), 0)
        self.assert_intact(self.dir / "saved", snapshot(self.dir / "saved"))
