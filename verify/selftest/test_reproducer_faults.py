"""A program that shows a finding of a run under a fault carries the fault, and says it in plain words."""

import json
import sys
import tarfile
from pathlib import Path

import test_reproducer_reference
from command import REPOSITORY, CommandTest, checkpoint
from registry import listed_bugs
from subject import expectation
from test_reproducer_reference import Reproducer

FULL_DISK = "On rank 1, the first write to a file and all after it fail with ENOSPC: No space left on device."


class Struck(Reproducer):
    """Of every planted bug that a property of faults finds."""

    labels = "selftest multi-rank fault"
    timeout_s = 400

    def carried(self, words, bug, property_id, *shows, **how):
        """The program says the fault in these words at its top, the report in its table, and both are seen to fail."""
        program = self.reproduced(bug, property_id, *shows, words[0].lower() + words[1:-1], **how)
        top = (program / "main.cc").read_text().partition("#include")[0]
        self.assertIn(words, " ".join(line.removeprefix("//").strip() for line in top.splitlines()))

    def test_a_checkpoint_that_is_gone(self):
        self.carried(FULL_DISK, "fault.old_one_removed_first", "fault.nothing_lost",
                     "the checkpoint of an earlier job is gone, and no other is there")  # fmt: skip

    def test_an_error_that_does_not_say_what_failed(self):
        self.carried(FULL_DISK, "fault.cause_not_told", "fault.ends_as_stated",
                     "rank 0 does not say which rank it was, and what was done there")  # fmt: skip


class OtherStruckJobs(Struck):
    labels = "selftest multi-rank fault nightly"
    timeout_s = 600

    def test_ranks_that_find_out_by_waiting(self):
        self.carried(FULL_DISK, "fault.error_not_told", "fault.ends_as_stated", "rank 0 does not say which rank it was")

    def test_a_checkpoint_of_bytes_that_were_never_written(self):
        self.carried(FULL_DISK, "fault.writer_error_swallowed", "fault.nothing_lost",
                     "is neither the earlier job's nor what this job saves")  # fmt: skip

    def test_a_file_that_stays_open(self):
        self.carried(FULL_DISK, "fault.file_left_open", "fault.nothing_leaks", "still open: ", transport="gloo")

    def test_a_job_that_finds_a_draft(self):
        self.carried("Rank 1 is killed when it has reached stage `ready`.", "fault.draft_taken_for_whole",
                     "fault.after_equals_undisturbed", "after the fault: ")  # fmt: skip

    def test_a_rank_that_waits_without_end(self):
        self.carried("Rank 1 is killed when it has reached stage `sharded`.", "fault.waits_without_end",
                     "fault.ends_as_stated", "not every rank had ended after 9 s", transport="gloo")  # fmt: skip

    def test_a_name_of_what_is_not_there(self):
        self.carried("On rank 1, the first write to a file, of those with 'step-00000002' in their name, and all after "
                     "it fail with ENOSPC: No space left on device.", "checkpoint.latest_before_data",
                     "fault.nothing_lost", "`latest` names 'step-00000002', which is not there")  # fmt: skip

    def rotten(self, property_id, *shows):
        self.carried("Of the newest saved checkpoint, the lowest bit of the third byte of all its tensors is flipped "
                     "when it is restored.", "checkpoint.load_not_verified", property_id, *shows)  # fmt: skip

    def test_a_save_that_is_damaged_and_restored(self):
        self.rotten("fault.damage_recovered", "the save after step 2 was restored, which is damaged")

    def test_a_parameter_that_was_damaged(self):
        self.rotten("checkpoint.training_round_trip", "element 0 of a.weight is")

    def test_a_resume_from_what_was_damaged(self):
        self.rotten("checkpoint.resume_exact", "element 0 of a.weight is")

    def test_what_a_killed_save_has_left(self):
        self.reproduced("fault.leftovers_kept", "fault.every_rank_finishes")

    def test_a_rank_that_is_alone_in_a_collective(self):
        self.reproduced("fault.barrier_on_rank0_only", "fault.every_rank_finishes")

    def test_a_rank_that_outlasts_the_patience_of_others(self):
        program = self.reproduced("fault.first_rank_outlasts_patience", "fault.every_rank_finishes", transport="gloo")
        self.assertIn("Ranks are processes over Gloo", (program / "main.cc").read_text())

    def test_a_broadcast_that_one_rank_alone_makes(self):
        self.reproduced("loading.buffers_broadcast_by_rank0_only", "fault.every_rank_finishes")

    def test_a_case_that_was_shrunk(self):
        done = self.shardproof("verify", "--generate", 400, "--bug", "fault.old_one_removed_first", "--property",
                               "fault.nothing_lost", "--report", "report", timeout=500)  # fmt: skip
        self.assert_exit(done, 1)
        report = self.dir / "report"
        case = json.loads((report / "case.json").read_text())
        self.assertEqual(len(case["faults"]), 1)
        entry, finding = self.entry_of(report, property="fault.nothing_lost")
        self.assertTrue(entry["seen"], (report / "reproducers" / entry["report"]).read_text())
        said = json.loads((report / "result.json").read_text())["faults"][0]
        top = (report / "reproducers" / entry["program"] / "main.cc").read_text().partition("#include")[0]
        self.assertIn(said[1:], " ".join(line.removeprefix("//").strip() for line in top.splitlines()))
        done = self.built(report / "reproducers" / entry["program"], "-DNO_BUG=ON")
        self.assert_exit(done, 0)


class EveryFault(Reproducer):
    """What a fault does to the sound pipeline shows in a program that carries it."""

    labels = "selftest multi-rank fault nightly"
    timeout_s = 400

    def shown(self, fault, says, *shows, transport="sim", **fields):
        tensors = [{"name": "a.weight", "dtype": "F32", "shape": [5, 3]},
                   {"name": "b.table", "kind": "buffer", "dtype": "BF16", "shape": [7]}]  # fmt: skip
        id_, _, where = fault.partition("@")
        case = {"schema": 1, "model": {"tensors": tensors}, "mesh": [{"name": "dp_shard", "size": 2}],
                "transport": transport, "deadline_ms": 4000, "faults": [{"id": id_, "where": where}], **fields}  # fmt: skip
        done = self.shardproof("verify", "--case", self.write("struck.json", case), "--report", "report", timeout=350)
        self.assertIn(done.code, (1, 4), str(done))
        out = self.dir / "report" / "reproducers"
        entry, _ = self.entry_of(self.dir / "report")
        text = (out / entry["report"]).read_text()
        self.assertTrue(entry["program"], text)
        for words in ("ended with exit code 1", says, *shows):
            self.assertIn(words, text)

    def ends(self, fault, says, *shows, **fields):
        """A fault that makes ranks end, which is no finding if it was asked how they do."""
        self.shown(fault, says, *shows, **fields)

    def test_no_space(self):
        self.ends("file/enospc@1:0", "fail with ENOSPC", "No space left on device")

    def test_no_quota(self):
        self.ends("file/edquot@call=0,rank=0,stage=saved,bytes=1", "fail with EDQUOT", "Disk quota exceeded")

    def test_a_write_that_fails(self):
        self.ends("file/eio@what=model,rank=1", "fails with EIO", "Input/output error")

    def test_a_write_of_which_half_is_done(self):
        self.ends("file/short@0:0", "when its first half is done", "No space left on device")

    def test_a_sync_that_fails(self):
        self.ends("file/fsync@0:1", "what it was to make durable is lost", "fsync of ")

    def test_a_mapping_that_fails(self):
        self.ends("file/map@0:0", "mapping of a file fails with ENOMEM", "Cannot allocate memory")

    def test_a_read_that_fails(self):
        self.ends("file/read@0:0", "read of a small file fails with EIO", "reading it: Input/output error",
                  steps=3, training={"save_every": 1})  # fmt: skip

    def test_a_file_system_that_is_read_only(self):
        self.ends("file/read-only@0:0", "fail with EROFS", "Read-only file system")

    def test_a_rename_that_fails(self):
        self.ends("file/rename@0:0", "first rename", "exchanging ")

    def test_no_memory_for_a_tensor(self):
        self.ends("memory/tensor@what=a.weight,rank=1", "fails with ENOMEM", "allocating ")

    def test_no_pinned_memory(self):
        self.ends("memory/pinned@0:1", "side streams reach", "allocating ", steps=2, training={"offload": 0.5})

    def test_a_device_that_is_full(self):
        self.ends("memory/device@40:1", "has 40 bytes of memory", "of the device's 40 bytes are in use")

    def test_a_rank_that_is_killed(self):
        self.ends("rank/kill@1@sharded", "is killed when it has reached stage", "rank 1")

    def test_a_process_that_is_killed_before_a_collective(self):
        self.ends("rank/kill@1@#2", "before its third collective", "rank 1", transport="gloo")

    def test_a_rank_that_leaves(self):
        self.ends("rank/leave@1@ready", "ends early, as if all were well", "rank 1")

    def test_a_process_that_stops(self):
        self.ends("rank/stop@1@ready", "stops and never answers again", "rank 1", transport="gloo")

    def test_connections_that_are_reset(self):
        self.ends("net/reset@1@ready", "has all of its connections reset", "rank 1", transport="gloo")

    def test_a_collective_that_is_left_out(self):
        self.ends("comm/drop@1:1", "second collective is left out")

    def test_a_collective_that_is_another_one(self):
        self.ends("comm/mismatch@0:1", "is another one there")

    def test_a_bit_of_the_file(self):
        self.shown("file/flip@a.weight:5", "lowest bit of element 5 of a.weight", "element 5 of a.weight is")

    def test_a_bit_on_the_wire(self):
        self.shown("comm/flip@what=a.weight,rank=1", "middle byte flipped", "of a.weight is")

    def test_rows_that_are_swapped(self):
        self.shown("comm/swap-rows@a.weight:1", "arrive swapped at rank 1", "of a.weight is")

    def test_a_buffer_that_turns_nan(self):
        self.shown("buffer/nan@b.table:0", "become NaN", "b.table")


class Subjects(Reproducer):
    """A rank of a framework does to itself what the fault says, in a script of torch and the standard library."""

    labels = "selftest multi-rank fault nightly"
    fixtures = "checkpoints"
    timeout_s = 600

    def report_on(self, subject):
        """A failing run of a subject with a mistake, as its file says, and the first finding's entry of the index."""
        file = REPOSITORY / "fixtures" / "subjects" / f"{subject}.py"
        wanted = expectation(file)
        done = self.shardproof(
            "verify", "--subject", file, "--checkpoint", checkpoint("llama-tied-small"), "--world", 2, "--property",
            wanted["property"], "--deadline", wanted.get("deadline", 60), *wanted["arguments"], "--report", "report",
            timeout=550, PYTHONPATH=str(REPOSITORY / "verify" / "subjects"))  # fmt: skip
        self.assertIn(done.code, (1, 4), str(done))
        out = self.dir / "report" / "reproducers"
        entry, _ = self.entry_of(self.dir / "report", property=wanted["property"])
        return entry, (out / entry["report"]).read_text(), out

    def test_a_rank_that_waits_for_one_that_was_killed(self):
        entry, text, out = self.report_on("waits_for_a_lost_rank")
        self.assertTrue(entry["seen"], text)
        self.assertIn("was still running after `materialized` when its time was over", text)
        self.assertIn("Rank 1 is killed when it has reached stage `sharded`.", (out / entry["script"]).read_text())

    def test_a_rank_that_is_not_waited_for(self):
        entry, text, out = self.report_on("not_slowed_down")
        self.assertTrue(entry["seen"], text)
        script = (out / entry["script"]).read_text()
        self.assertIn("Rank 0 does nothing for 300 ms when it has reached stage `built`.", script)
        mistake = 'raise TimeoutError("building took too long")'
        self.assertIn(mistake, script)
        sound = self.write("sound.py", script.replace(mistake, "pass"))
        self.assert_exit(self.run_process(sys.executable, sound, timeout=200), 0)

    def test_what_is_left_after_a_fault_is_shown_by_shardproof_alone(self):
        entry, text, _ = self.report_on("leaves_a_lock")
        self.assertIsNone(entry["script"])
        self.assertIn("Shardproof does it again: `shardproof replay case.json`", text)
        self.assertIn("| fault | rank 1 is killed when it has reached stage `built` |", text)


class EveryBug(CommandTest):
    labels = "selftest"
    # What a process leaves: a program's ranks are threads of one, and its report says that it shows none.
    of_processes = {"fault.helper_left_running", "fault.shared_memory_left", "fault.temporary_file_left"}

    def test_every_bug_that_a_property_of_faults_finds_has_its_program_tested(self):
        bugs = listed_bugs(self.shardproof("list", "bugs").out)
        of_faults = {bug for bug, killers in bugs.items() if any(one.startswith("fault.") for one in killers)}
        self.assertGreater(len(of_faults), 10)
        text = Path(__file__).read_text() + Path(test_reproducer_reference.__file__).read_text()
        shown = {bug for bug in of_faults - self.of_processes if f'"{bug}"' in text}
        self.assertEqual(of_faults - shown, self.of_processes)


class SameAgain(CommandTest):
    """Replay of a report fails in the same way, for each of what faults ask of a pipeline."""

    labels = "selftest multi-rank fault"
    timeout_s = 120

    def fails_again(self, bug, *words, fault=""):
        without_cmake = {"PATH": ""}  # programs take longer than all the rest
        first = self.shardproof("verify", *(["--bug", bug] if bug else []), *words, "--report", "one", **without_cmake)
        self.assertIn(first.code, (1, 4), str(first))
        before = json.loads((self.dir / "one" / "result.json").read_text())
        self.assertIn(fault, first.out)
        for where in ("one", "one/reproducers/case.json"):
            again = self.judged("replay", where, code=first.code)
            self.assertEqual(again["case"]["faults"], before["case"]["faults"])
            self.assertEqual(again["faults"], before["faults"])
            self.assertEqual(*({one["fingerprint"] for one in run["findings"]} for run in (before, again)))
        return before

    def test_of_damage_that_must_be_seen(self):
        case = {"schema": 1, "model": {"tensors": [{"name": "w", "dtype": "F32", "shape": [5, 3]}]},
                "mesh": [{"name": "dp_shard", "size": 2}], "faults": [{"id": "file/flip", "where": "w:4"}]}  # fmt: skip
        self.fails_again("", "--case", self.write("case.json", case), fault="lowest bit of element 4 of w is flipped")

    def test_of_what_only_holds_up(self):
        case = {"schema": 1, "as_stated": True, "faults": [{"id": "file/slow", "where": "0:0"}],
                "model": {"tensors": [{"name": "w", "dtype": "F32", "shape": [5, 3]}]},
                "mesh": [{"name": "dp_shard", "size": 2}]}  # fmt: skip
        self.fails_again("fault.leftovers_kept", "--case", self.write("case.json", case), fault="take 20 ms longer")

    def test_of_a_damaged_save(self):
        self.fails_again("checkpoint.load_not_verified", fault="flipped when it is restored")

    def test_of_a_call_that_fails(self):
        self.fails_again("fault.writer_error_swallowed", fault="fail with ENOSPC: No space left on device")

    def test_of_a_rank_that_is_lost(self):
        self.fails_again("fault.draft_taken_for_whole", fault="rank 1 is killed when it has reached stage `ready`")

    def test_the_bundle_carries_the_fault(self):
        before = self.fails_again("fault.writer_error_swallowed")
        self.assert_exit(self.shardproof("report", "one", "--bundle", "out.tar.gz"), 0)
        with tarfile.open(self.dir / "out.tar.gz") as archive:
            archive.extractall(self.dir)
        self.assertIn(f"Under a fault: {before['faults'][0]}.", (self.dir / "out" / "README.txt").read_text())
        again = self.judged("replay", "out/evidence", code=1)
        self.assertEqual(again["faults"], before["faults"])
        self.assertIn(before["faults"][0], (self.dir / "out" / "report.html").read_text())
