"""Options that cannot be: exit code 2, the option's value named, the known ones listed."""

import os
import shutil

from checkpoints import write_llama
from command import REPOSITORY, CommandTest, snapshot

NORM = "model.norm.weight"


class BadOptions(CommandTest):
    def setUp(self):
        super().setUp()
        write_llama(self.dir / "good", files=2)

    def refused_options(self, *words, names):
        return self.refused("verify", "--checkpoint", "good", "--world", 2, *words, names=names)

    def refused_inject(self, fault, *names):
        self.refused_options("--inject", fault, names=names)

    def test_an_empty_path_is_no_absent_option(self):
        for option in ("--report", "--json", "--save-to"):
            self.refused_options(option, "", names=[option, "empty"])

    def test_a_kernel_of_the_digest_that_is_none(self):
        for words in (["audit", "good"], ["verify", "--checkpoint", "good"]):
            self.refused(*words, names=["SHARDPROOF_DIGEST_KERNEL is 'avx3'", "avx512, avx2 or "],
                         SHARDPROOF_DIGEST_KERNEL="avx3")  # fmt: skip

    def test_a_bug_that_acts_on_nothing_is_no_pass(self):
        document = self.judged("verify", "--bug", "sharding.shards_swapped", "--strategy",
                               "rank0-scatter", code=3)  # fmt: skip
        reasons = [
            one["reason"] for one in document["properties"] if one["verdict"] == "inconclusive"
        ]
        self.assertTrue(reasons)
        for reason in reasons:
            self.assertIn("sharding.shards_swapped", reason)

    def test_what_a_rank_throws_is_a_finding(self):
        case = REPOSITORY / "fixtures" / "cases" / "everything.json"
        document = self.judged(
            "verify", "--bug", "sharding.ceil_on_every_rank", "--case", case, code=1
        )
        messages = [one["message"] for one in document["findings"]]
        self.assertTrue(any("it threw" in message for message in messages), messages)

    def test_a_mesh_to_restore_on(self):
        document = self.judged("verify", "--checkpoint", "good", "--mesh", "tp=2", "--resume-mesh",
                               "2x2", code=0)  # fmt: skip
        self.assertEqual([axis["size"] for axis in document["case"]["resume_mesh"]], [2, 2])
        self.refused_options("--resume-mesh", "2y2", names=["--resume-mesh", "2y2"])

    def test_reaching_into_a_devices_memory_is_told(self):
        done = self.shardproof(
            "verify", "--bug", "loading.tie_broken_by_materialize", "--device", "isolated"
        )
        self.assert_exit(done, 1)
        self.assertIn("accessed device memory of", done.out)

    def test_former_names_are_accepted(self):
        verify = ["verify", "--checkpoint", "good", "--world", 2]
        killed = self.judged(
            *verify, "--kill", "1@sharded", "--as-stated", "--deadline", 10, code=0
        )
        self.assertIs(killed["case"]["as_stated"], True)
        isolated = self.judged(*verify, "--device", "apart", code=0)
        self.assertEqual(isolated["case"]["device"], "isolated")

    def test_unknown_fault_lists_the_known(self):
        self.refused_inject("file/flop@x:1", "file/flop", "file/flip", "comm/swap-rows")

    def test_fault_without_where(self):
        self.refused_inject("file/flip", "ID@WHERE")

    def test_unknown_tensor_suggests_the_nearest(self):
        self.refused_inject("file/flip@model.nrom.weight:1", "model.nrom.weight", NORM)

    def test_unknown_tensor_of_swap_rows_suggests_the_nearest(self):
        self.refused_inject("comm/swap-rows@lm_haed.weight", "lm_haed.weight", "lm_head.weight")

    def test_unknown_buffer_lists_the_buffers(self):
        self.refused_inject("buffer/nan@rotary", "rotary", "model.rotary_emb.inv_freq")

    def test_index_out_of_range(self):
        self.refused_inject(f"file/flip@{NORM}:8", NORM, "8", "7")

    def test_negative_index(self):
        self.refused_inject(f"file/flip@{NORM}:-1", "-1")

    def test_index_that_is_no_number(self):
        self.refused_inject(f"file/flip@{NORM}:x", "x")

    def test_coordinates_of_another_rank(self):
        self.refused_inject(f"file/flip@{NORM}:1,1", NORM)

    def test_no_index(self):
        self.refused_inject(f"file/flip@{NORM}", NORM)

    def test_rank_out_of_range(self):
        self.refused_inject("rank/kill@2@ready", "2", "1")

    def test_unknown_stage_lists_the_known(self):
        self.refused_inject("rank/kill@1@raedy", "raedy", "ready")

    def test_negative_write_number(self):
        self.refused_inject("file/enospc@-1", "-1")

    def test_unknown_bug(self):
        self.refused_options("--bug", "no.such", names=["no.such", "sharding.shards_swapped"])

    def test_unknown_property(self):
        self.refused_options("--property", "no.such", names=["no.such", "loading.equals_source"])

    def test_unknown_strategy(self):
        self.refused_options(
            "--strategy",
            "magic",
            names=["--strategy: expected one of", "magic", "rank0-broadcast", "plain"],
        )

    def test_world_of_zero_ranks(self):
        self.refused("verify", "--checkpoint", "good", "--world", 0, names=["0"])

    def test_world_of_2000_ranks(self):
        self.refused("verify", "--checkpoint", "good", "--world", 2000, names=["2000", "1024"])

    def test_world_of_negative_ranks(self):
        self.refused("verify", "--checkpoint", "good", "--world", -1, names=["-1"])

    def test_bucket_of_no_bytes(self):
        self.refused_options(
            "--bucket-bytes", 0, names=["--bucket-bytes: expected an integer from 1"]
        )

    def test_deadline_of_no_time(self):
        self.refused_options("--deadline", 0, names=["--deadline: expected seconds from 0.001"])

    def test_negative_deadline(self):
        self.refused_options("--deadline", -5, names=["--deadline: expected seconds"])

    def test_deadline_that_is_no_number(self):
        self.refused_options(
            "--deadline", "nan", names=["--deadline: expected seconds", "found nan"]
        )

    def test_axes_of_a_mesh(self):
        for mesh, found in (
            ("dp_shard=0", "found 0"),
            ("magic=2", "dp_shard, dp_replicate"),
            ("tp=2,tp=2", "twice"),
        ):
            with self.subTest(mesh):
                self.refused(
                    "verify", "--checkpoint", "good", "--mesh", mesh, names=["--mesh: ", found]
                )

    def test_axes_that_are_laid_over_others(self):
        self.write("s.py", "def run(case, observe):\n    pass\n")
        for mesh, *names in (
            ("dp_shard=4,ep=3@dp_shard", "axis ep", "divides the 4 ranks of dp_shard, found 3"),
            ("ep=2@nothing", "axis ep is laid over nothing, which is no axis of the mesh"),
            ("dp_shard=2,ep=2@nothing", "expected one of dp_shard"),
            ("dp_shard=2,ep=2@ep", "axis ep is laid over itself"),
            ("dp_shard=4,ep=2@dp_shard+dp_shard", "axis ep is laid over dp_shard twice"),
            ("dp_shard=4,ep=2@dp_shard,ep=2@dp_shard", "given twice"),
            ("dp_shard=4,ep=0@dp_shard", "axis ep: expected an integer from 1 to 1024, found 0"),
            ("dp_shard=0,ep=2@dp_shard", "axis dp_shard: expected an integer from 1"),
            ("dp_shard=4,cp=1024,ep=2@dp_shard+cp", "at most 1024 ranks, found more at axis cp"),
            (
                "dp_shard=4,ep=2@dp_shard,x=2@ep",
                "axis x is laid over ep",
                "laid over others itself",
            ),
            ("dp_shard=4,ep=2@dp_shard,dp_shard_mod_ep=2", "what axis ep leaves of dp_shard"),
            ("dp_shard=4,ep=2@", "AXIS=RANKS@AXIS+..."),
            ("dp_shard=4,ep=99999999999999999999@dp_shard", "expected AXIS=RANKS"),
        ):
            with self.subTest(mesh):
                self.refused("verify", "--checkpoint", "good", "--subject", "s.py", "--mesh", mesh,
                             names=["--mesh", *names])  # fmt: skip

    def test_the_reference_has_no_axes_that_are_laid_over_others(self):
        for option in ("--mesh", "--resume-mesh"):
            self.refused("verify", "--checkpoint", "good", option, "dp_shard=4,ep=2@dp_shard",
                         names=[option, "axis ep", "which only subjects can have"])  # fmt: skip

    def test_negative_seed(self):
        self.refused_options("--seed", -1, names=["--seed: expected an integer from 0", "found -1"])

    def test_no_model_at_all(self):
        self.refused("verify", names=["--checkpoint", "--case"])

    def test_checkpoint_and_case(self):
        self.refused_options("--case", "x.json", names=["--checkpoint", "--case"])

    def test_report_directory_is_a_file(self):
        self.write("out", "a file")
        self.refused_options("--report", "out", names=["out"])

    def test_report_directory_below_a_file(self):
        self.write("out", "a file")
        self.refused_options("--report", "out/deeper", names=["out"])

    def test_report_directory_where_nothing_can_be_made(self):
        self.refused_options("--report", "/proc/1/out", names=["/proc/1/out"])

    def test_json_file_that_cannot_be_written(self):
        before = snapshot(self.dir)
        done = self.shardproof("verify", "--checkpoint", "good", "--world", 2,
                               "--json", "no/where/result.json")  # fmt: skip
        self.assert_exit(done, 2)
        self.assertIn("no/where/result.json", done.err)
        self.assertEqual(len(done.err.splitlines()), 1)
        self.assertEqual(snapshot(self.dir), before)

    def test_save_to_a_directory_that_is_no_checkpoint_leaves_it_untouched(self):
        self.write("thesis/chapter.txt", "years of work")
        self.refused_options("--save-to", "thesis", names=["thesis"])

    def test_save_to_the_source_is_refused(self):
        self.refused_options("--save-to", "good", names=["good"])

    def test_outputs_in_or_around_the_source_are_refused(self):
        os.symlink("good", self.dir / "link")
        for option, path in (("--save-to", "good/saved"), ("--save-to", "."), ("--save-to", "link"),
                             ("--report", "good"), ("--report", "good/report"),
                             ("--json", "good/config.json")):  # fmt: skip
            with self.subTest(f"{option} {path}"):
                self.refused_options(option, path, names=[option, path])
        self.judged("verify", "--checkpoint", "good", "--world", "2", code=0)

    def test_save_to_a_checkpoint_with_files_of_others_leaves_it_untouched(self):
        shutil.copytree(self.dir / "good", self.dir / "kept")
        (self.dir / "kept" / "model.safetensors.index.json").touch()
        (self.dir / "kept" / "optimizer.pt").write_text("weeks")
        self.refused_options("--save-to", "kept", names=["kept", "optimizer.pt"])
        self.assertEqual((self.dir / "kept" / "optimizer.pt").read_text(), "weeks")

    def test_a_tensor_that_the_model_does_not_load(self):
        write_llama(self.dir / "tied", tie_word_embeddings=True)  # its file has lm_head too
        for fault in ("file/flip@lm_head.weight:3", "comm/swap-rows@lm_head.weight"):
            with self.subTest(fault):
                self.refused("verify", "--checkpoint", "tied", "--world", 2, "--inject", fault,
                             names=[fault, "model.embed_tokens.weight"])  # fmt: skip

    def test_save_to_a_file(self):
        self.write("saved", "a file")
        self.refused_options("--save-to", "saved", names=["saved"])

    def test_save_to_below_a_directory_that_is_not_there(self):
        done = self.shardproof("verify", "--checkpoint", "good", "--world", 2,
                               "--save-to", "not/there/saved")  # fmt: skip
        if done.code != 0:  # making the parents is as good as refusing
            self.assert_exit(done, 2)
            self.assertIn("not/there", done.err)
