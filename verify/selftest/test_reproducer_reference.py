"""A program that shows a finding of the reference pipeline fails with its planted bug, and does not without.

Any planted bug by hand, in the environment of the tests: test_reproducer_reference.py ID PROPERTY [TRANSPORT]
"""

import json
import os
import re
import shutil
import sys
import unittest

from command import REPOSITORY, CommandTest

SCRIPT = REPOSITORY / "verify" / "report" / "reproducer_reference.py"


class Reproducer(CommandTest):
    labels = "selftest multi-rank"
    timeout_s = 400

    def found(self, bug, *words, **variables):
        """A failing run of a planted bug with a report. \\returns the report's directory"""
        report = self.root / "report"
        done = self.shardproof("verify", "--bug", bug, *words, "--report", report, timeout=350, **variables)
        self.assertIn(done.code, (1, 4), str(done))
        return report

    def entry_of(self, report, **wanted):
        """What came of the first finding that is as wanted: the entry of the index, and the finding."""
        index = json.loads((report / "reproducers" / "reproducers.json").read_text())["findings"]
        for finding in json.loads((report / "result.json").read_text())["findings"]:
            if all(finding.get(key) == value for key, value in wanted.items()):
                return index[finding["fingerprint"]], finding
        self.fail(f"no finding is {wanted}")

    def built(self, program, *more):
        """Builds a program as whoever gets it would, and runs it. \\returns how it ended"""
        build = self.root / "build"
        generator = [] if shutil.which("make") else ["-G", "Ninja"]
        words = [*generator, f"-DSHARDPROOF_SOURCE={REPOSITORY}", f"-DTORCH_PYTHON={sys.executable}",
                 f"-DSHARDPROOF_BUILD={os.environ['SHARDPROOF_BUILD']}", *more]  # fmt: skip
        for step in (["-S", program, "-B", build, *words], ["--build", build]):
            self.assert_exit(self.run_process("cmake", *step, timeout=300), 0)
        return self.run_process(build / "reproducer")

    def keep_phase(self, report, phase):
        """Writes the programs of the findings of one phase, as if those of others were none."""
        result = json.loads((report / "result.json").read_text())
        result["findings"] = [one for one in result["findings"] if one["phase"] == phase]
        (report / "result.json").write_text(json.dumps(result))
        shutil.rmtree(report / "reproducers")
        done = self.run_process(sys.executable, SCRIPT, report / "result.json", report / "evidence",
                                report / "reproducers", "--source", REPOSITORY, "--build",
                                os.environ["SHARDPROOF_BUILD"], timeout=300)  # fmt: skip
        self.assert_exit(done, 0)

    def reproduced(self, bug, property_id, *shows, case=None, phase="", transport="sim"):
        """The finding's program: seen to fail as the report says, and it does not without the bug.

        case: what is run in place of the smallest case of the bug
        phase: whose findings are to have a program, where those of an earlier phase would have one in their place
        """
        words = ["--case", self.write("shown.json", case)] if case else []
        words += ["--transport", transport]
        without_cmake = {"PATH": ""} if phase else {}
        report = self.found(bug, *words, "--property", property_id, **without_cmake)
        if phase:
            self.keep_phase(report, phase)
        out = report / "reproducers"
        entry, finding = self.entry_of(report, property=property_id)
        text = (out / entry["report"]).read_text()
        self.assertTrue(entry["seen"], text)
        for words in (finding["message"], finding["fingerprint"], "ended with exit code 1", "\nseen ", *shows):
            self.assertIn(words, text)
        if not phase:
            self.assertIn(f'href="reproducers/{entry["program"]}/main.cc"', (report / "report.html").read_text())
        self.assertEqual(json.loads((out / "case.json").read_text())["bug"], bug)
        for name in ("main.cc", "CMakeLists.txt"):
            code = (out / entry["program"] / name).read_text()
            for place in (str(REPOSITORY), os.environ["SHARDPROOF_BUILD"], str(self.root), sys.prefix):
                self.assertNotIn(place, code)
        included = set(re.findall(r'#include "(verify|properties|fixtures)/(.+)"',
                                  (out / entry["program"] / "main.cc").read_text()))  # fmt: skip
        self.assertEqual(included, {("verify", "bug/bug.h")})
        done = self.built(out / entry["program"], "-DNO_BUG=ON")
        self.assert_exit(done, 0)
        self.assertIn("ok: it does not show here", done.out)
        return out / entry["program"]

    def test_a_wrong_element_is_shown_and_linked(self):
        self.reproduced("sharding.shards_swapped", "loading.equals_source",
                        "expected  element 0 of a.weight to be -0.0018971111 (0xbaf8a87c)",
                        "rank 0: element 0 of a.weight is 2.182657e-23 (0x19d317f8)")  # fmt: skip


class WithoutProgram(Reproducer):
    labels = "selftest multi-rank"
    timeout_s = 200

    def told(self, report, reason, **wanted):
        done = self.run_process(sys.executable, SCRIPT, report / "result.json", report / "evidence",
                                report / "reproducers")  # fmt: skip
        self.assert_exit(done, 0)
        entry, _ = self.entry_of(report, **wanted)
        self.assertEqual((entry["program"], entry["seen"]), (None, False))
        text = (report / "reproducers" / entry["report"]).read_text()
        self.assertIn("No program shows it: " + reason, text)
        self.assertTrue((report / "reproducers" / "case.json").exists())
        self.assertEqual(list((report / "reproducers").glob("*/main.cc")), [])

    def test_memory_of_a_process_has_a_report_and_no_program(self):
        report = self.found("memory.placeholders_zeroed")
        self.told(report, "it is about the memory of a process", property="memory.no_page_commit")

    def test_without_the_sources_there_is_a_report_and_no_program(self):
        report = self.found("memory.placeholders_zeroed")
        result = json.loads((report / "result.json").read_text())
        for finding in result["findings"]:  # of a kind that a program could show
            finding.update(property="loading.no_meta_left", kind="meta", phase="values")
        (report / "result.json").write_text(json.dumps(result))
        self.told(report, "the sources of the pipeline are not here", kind="meta")


class OtherKinds(Reproducer):
    labels = "selftest multi-rank nightly"
    timeout_s = 400

    def test_a_restore_on_another_mesh(self):
        self.reproduced("checkpoint.resume_uses_saved_offsets", "checkpoint.reshard", "element 12 of a.weight")

    def test_what_a_saved_checkpoint_lacks(self):
        self.reproduced("checkpoint.drops_frozen", "checkpoint.round_trip", "0 of these keys")

    def test_shards_that_do_not_tile(self):
        self.reproduced("sharding.last_rank_drops_remainder", "sharding.shards_tile", "is owned by 0 ranks")

    def test_collectives_in_another_order(self):
        self.reproduced("comm.two_broadcasts_swapped", "sharding.collectives_in_order",
                        "rank 1: collective 13 is broadcast from rank 0 of b.weight")  # fmt: skip

    def test_a_rank_that_ends_with_an_error(self):
        self.reproduced("fault.error_not_shared", "fault.every_rank_finishes", "Input/output error")

    def test_a_rank_that_dies(self):
        case = {"schema": 1, "model": {"tensors": [{"name": "bias", "dtype": "F32", "shape": [1]}]},
                "mesh": [{"name": "dp_shard", "size": 1}, {"name": "dp_replicate", "size": 2}],
                "strategy": "rank0-scatter"}  # fmt: skip
        self.reproduced("comm.scatter_by_column", "fault.every_rank_finishes",
                        "with it the process, ended by signal 6", case=case)  # fmt: skip

    def test_a_tensor_left_on_meta(self):
        self.reproduced("loading.meta_buffer_kept", "loading.no_meta_left", "rotary.inv_freq is on the meta device")

    def test_a_tie_that_is_broken(self):
        self.reproduced("loading.tie_broken_by_materialize", "loading.ties_kept", "do not share memory")

    def test_an_optimizer_of_the_old_tensors(self):
        self.reproduced("training.optimizer_not_rebound", "training.optimizer_live",
                        "the optimizer holds a.weight 0 times")  # fmt: skip

    def test_groups_of_an_optimizer_that_are_one(self):
        self.reproduced("training.groups_merged", "training.groups_kept",
                        "name=matrices weight_decay=0.1 a.weight a.bias]")  # fmt: skip


class Training(Reproducer):
    labels = "selftest multi-rank nightly"
    timeout_s = 400

    def test_a_parameter_after_a_step(self):
        self.reproduced("training.norm_of_own_shard", "training.steps_by_formula",
                        "expected  element 0 of a.weight at `stepped@1` to be -0.002896911 (0xbb3dda1a)",
                        "rank 0: element 0 of a.weight is -0.0028969138 (0xbb3dda26)")  # fmt: skip

    def test_the_state_of_the_optimizer_after_a_resume_on_another_mesh(self):
        weights = [{"name": f"{name}.weight", "dtype": "F32", "shape": [5, 3]} for name in "ab"]
        case = {"schema": 1, "model": {"tensors": weights}, "mesh": [{"name": "dp_shard", "size": 2}],
                "resume_mesh": [{"name": "dp_shard", "size": 3}], "steps": 2}  # fmt: skip
        program = self.reproduced("training.state_by_position", "checkpoint.training_round_trip",
                                  "element 0 of a.weight.exp_avg is", case=case, phase="train_resume")  # fmt: skip
        self.assertIn('{.axes = {{"dp_shard", 3}}}', (program / "main.cc").read_text())

    def test_an_option_of_a_group(self):
        self.reproduced("training.options_not_restored", "checkpoint.training_round_trip",
                        "rank 0: lr of a.weight is 0.001, it was 0.0009375")  # fmt: skip

    def test_a_copy_that_races_a_step(self):
        self.reproduced("offload.fetched_not_waited_for", "offload.equals_on_device",
                        "rank 0: element 0 of a.weight is -nan (0xffffffff), it was -0.002896921 (0xbb3dda45)")

    def test_a_resume_that_differs(self):
        self.reproduced("training.step_not_restored", "checkpoint.resume_exact",
                        "rank 0: element 0 of a.weight is -0.0027138842 (0xbb31db6c)")  # fmt: skip

    def test_a_generator_of_another_rank(self):
        self.reproduced("checkpoint.rng_of_rank0_for_all", "checkpoint.training_round_trip",
                        "rank 1: its generator is in another state")  # fmt: skip

    def test_a_save_that_goes_on_beside_the_steps(self):
        self.reproduced("checkpoint.snapshot_is_live", "checkpoint.training_files",
                        "a.weight is -0.0027606471 (0xbb34ebf9) in step-00000001, it was -0.002896921")  # fmt: skip

    def test_what_is_on_disk_in_safetensors(self):
        case = {"schema": 1, "steps": 2, "training": {"format": "safetensors"},
                "model": {"tensors": [{"name": f"{name}.weight", "dtype": "F32", "shape": [5, 3]} for name in "ab"]},
                "mesh": [{"name": "dp_shard", "size": 1}]}  # fmt: skip
        program = self.reproduced("checkpoint.piece_names_swapped", "checkpoint.training_files",
                                  "element 0 of a.weight is", case=case)  # fmt: skip
        self.assertIn("AddTrainingState", (program / "main.cc").read_text())

    def test_the_file_that_names_the_newest_save(self):
        self.reproduced("checkpoint.latest_not_synced", "checkpoint.commit_whole", 'the file `latest` holds ""')

    def test_state_that_is_not_where_it_was_asked_for(self):
        self.reproduced("offload.fraction_ignored", "offload.state_where_asked",
                        "the host has the state of 0 of 30 elements")  # fmt: skip


def by_hand(bug, property_id, transport="sim"):
    setattr(Reproducer, "test_by_hand", lambda self: self.reproduced(bug, property_id, transport=transport))
    unittest.main(argv=[sys.argv[0], "Reproducer.test_by_hand"])


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(f"usage: {sys.argv[0]} ID PROPERTY [TRANSPORT]")
    by_hand(*sys.argv[1:])
