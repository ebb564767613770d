"""A job that says nothing of Shardproof, attached: it comes to what it comes to alone, and what is
wrong in it is named."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from command import REPOSITORY, CommandTest, command

HERE = REPOSITORY / "verify" / "selftest"
EXAMPLES = REPOSITORY / "fixtures" / "examples"
TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node")
ATTACHED = ("-m", "shardproof.run")


class AttachedTest(CommandTest):
    def run_python(self, *words, folder="work", timeout=150):
        where = self.root / folder
        where.mkdir(exist_ok=True)
        paths = [HERE, REPOSITORY / "verify" / "python"]
        return self.run_process(
            "env", "-C", where, sys.executable, *words, timeout=timeout,
            PYTHONPATH=os.pathsep.join(map(str, paths)), GLOO_SOCKET_IFNAME="lo",
            PATH=os.pathsep.join([str(Path(command()).parent), os.environ["PATH"]]),
            SHARDPROOF_DIGEST_OP=os.path.join(os.environ["SHARDPROOF_BUILD"], "_digest_op.so"),
            TORCHINDUCTOR_CACHE_DIR=str(self.root / "inductor"),
        )  # fmt: skip

    def attached(self, *words, ranks=2, options=(), folder="work"):
        return self.run_python(*TORCHRUN, ranks, *ATTACHED, *options, *words, folder=folder)

    def came_to(self, folder, ranks=2):
        return [json.loads((self.root / folder / f"rank{k}.json").read_text())
                for k in range(ranks)]  # fmt: skip

    def assert_as_alone(self, script, *words, launcher=(*TORCHRUN, 2)):
        """Numbers, random numbers and collectives. \\returns the run of the attached job."""
        alone = self.run_python(*launcher, script, *words, folder="alone")
        self.assert_exit(alone, 0)
        done = self.run_python(*launcher, *ATTACHED, script, *words, folder="work")
        self.assert_exit(done, 0)
        self.assertEqual(self.came_to("work"), self.came_to("alone"))
        for rank in self.came_to("alone"):
            self.assertTrue(all(count > 0 for count in rank["collectives"]), rank)
        return done

    def assert_silent(self, done):
        """One line, that nothing was found; and that there was something to find it in."""
        said = [line for line in done.err.splitlines() if line.startswith("shardproof")]
        self.assertTrue(said and all("no finding: " in line for line in said), str(done))
        self.assertNotIn(" 0 comparisons", "".join(said))

    def stages(self, rank=0, model=""):
        """Names of the stages on record, with their steps."""
        (facts,) = self.root.glob(
            f"work/shardproof-evidence/*/{model}values/rank_{rank}.facts.jsonl"
        )
        records = [json.loads(line) for line in facts.read_text().splitlines()]
        return [f"{r['name']}{r['step'] or ''}{'.' + r['of'] if 'of' in r else ''}"
                for r in records if r["record"] == "stage"]  # fmt: skip


class Sound(AttachedTest):
    labels = "selftest multi-rank framework"
    timeout_s = 320

    def example(self, name):
        """One of the examples, without the two lines that are Shardproof's."""
        text = (EXAMPLES / name).read_text()
        for ours, other in (
            ("import shardproof", "import attached_record"),
            ("outcome = shardproof.check(model, optimizer=optimizer)",
             "outcome = attached_record.record(model, optimizer)['sums']"),
        ):  # fmt: skip
            self.assertEqual(text.count(ours), 1)
            text = text.replace(ours, other)
        self.assertNotIn("shardproof.", text)
        (self.root / name).write_text(text)
        return self.root / name

    def test_fsdp2(self):
        self.assert_silent(self.assert_as_alone(self.example("fsdp2_train.py")))
        self.assertEqual(self.stages()[::2], ["ready", "stepped1", "stepped3"])

    def test_fsdp1(self):
        self.assert_silent(self.assert_as_alone(self.example("fsdp1_train.py")))
        self.assertEqual(self.stages()[::2], ["ready", "stepped1", "stepped3"])

    def test_dcp(self):
        self.assert_silent(self.assert_as_alone(self.example("dcp_resume.py")))
        self.assertEqual(
            self.stages(),
            ["ready", "ready.optimizer", "stepped1", "stepped1.optimizer", "saved1",
             "saved1.optimizer", "saved1.state_dict"],
        )  # fmt: skip
        self.assertEqual(self.stages(model="model1/")[::2], ["ready", "restored", "stepped1"])

    def test_ddp_with_what_looks_odd(self):
        self.assert_silent(self.assert_as_alone(HERE / "attached_job.py", "none"))
        self.assertIn("saved3.state_dict", self.stages())
        self.assertNotIn("saved3.state_dict", self.stages(rank=1))
        self.assertIn("restored", self.stages(rank=1))

    def test_spawned_ranks(self):
        job = (HERE / "attached_job.py", "none", "spawn")
        self.assert_silent(self.assert_as_alone(*job, launcher=()))
        self.assertIn("stepped1", self.stages(rank=1))

    def test_transformers(self):
        self.assert_silent(self.assert_as_alone(HERE / "attached_trainer.py", "trainer"))
        self.assertIn("stepped1", self.stages())
        self.assertIn("saved2.state_dict", self.stages())

    def test_accelerate(self):
        self.assert_silent(self.assert_as_alone(HERE / "attached_trainer.py", "accelerate"))
        self.assertIn("restored", self.stages())


class Memory(AttachedTest):
    labels = "selftest multi-rank framework"
    timeout_s = 320

    def report(self):
        """Text and document of the report of the attached job."""
        (folder,) = (self.root / "work/shardproof-evidence").iterdir()
        done = self.shardproof("report", folder, "--json", self.root / "result.json")
        return done.out, json.loads((self.root / "result.json").read_text())

    def held(self, document, stage, rank, kind):
        (at,) = [each for each in document["memory"] if each["stage"] == stage]
        return sum(one["bytes"] for one in at["ranks"][rank]["tensors"] if one["of"] == kind)

    def test_a_sound_job_retains_nothing(self):
        self.assert_silent(self.assert_as_alone(HERE / "attached_memory.py", "nothing"))
        text, document = self.report()
        self.assertNotIn("retained", text)
        self.assertIn("memory  MiB at each stage", text)
        self.assertEqual([each["stage"] for each in document["memory"]],
                         ["ready", "stepped@1", "stepped@2"])  # fmt: skip
        for rank in (0, 1):
            self.assertAlmostEqual(self.held(document, "ready", rank, "parameter") >> 20, 32)
            self.assertAlmostEqual(self.held(document, "stepped@2", rank, "optimizer") >> 20, 32)
        (node,) = document["memory"][0]["nodes"]
        ranks = document["memory"][0]["ranks"]
        self.assertEqual(node["ranks"], 2)
        self.assertLessEqual(node["shared_bytes"], sum(rank["shared_bytes"] for rank in ranks))
        self.assertLess(node["file_bytes"], sum(rank["file_bytes"] for rank in ranks))
        self.assertGreater(node["anonymous_bytes"], ranks[0]["anonymous_bytes"])

    def test_who_retains_what(self):
        for keeps, holder in (("attribute", "`loader` in main"), ("local", "`everything` in main")):
            with self.subTest(keeps=keeps):
                done = self.attached(HERE / "attached_memory.py", keeps, options=["--who"],
                                     folder=f"who_{keeps}")  # fmt: skip
                self.assert_exit(done, 0)
                retained = re.search(r"retained +after `\S+`, rank 1 holds (\S+) MiB", done.err)
                self.assertTrue(retained, str(done))
                self.assertAlmostEqual(float(retained[1]), 32, delta=2)
                self.assertIn(f"held by {holder}, ", done.err)
                self.assertIn("attached_memory.py:", done.err)

    def test_who_changes_no_number(self):
        alone = self.run_python(*TORCHRUN, 2, HERE / "attached_memory.py", "local", folder="alone")
        self.assert_exit(alone, 0)
        done = self.attached(HERE / "attached_memory.py", "local", options=["--who"])
        self.assert_exit(done, 0)
        self.assertEqual(self.came_to("work"), self.came_to("alone"))


class Nightly(AttachedTest):
    labels = "selftest multi-rank framework nightly"
    timeout_s = 320

    def test_lightning(self):
        words = [sys.executable, "-c", "import lightning"]
        if subprocess.run(words, capture_output=True).returncode:
            self.skipTest("Lightning is not installed")
        self.assert_silent(self.assert_as_alone(HERE / "attached_lightning.py", launcher=()))
        self.assertIn("stepped1", self.stages(rank=1))


class Mistakes(AttachedTest):
    labels = "selftest multi-rank framework"
    timeout_s = 160

    def told(self, mistake, *, code=0, **options):
        """Runs the job with a mistake. \\returns the lines of its report."""
        done = self.attached(HERE / "attached_job.py", mistake, **options)
        self.assertEqual(done.code, code, str(done))
        return done, [line for line in done.err.splitlines() if line.startswith("FAIL")]

    def test_a_replica_that_was_changed(self):
        done, found = self.told("replica")
        self.assertEqual(len(found), 1, str(done))
        self.assertIn("sharding.ranks_match_rank0: first.bias at `stepped@3`", found[0])
        self.assertIn("rank 1 of 2", found[0])
        self.assertIn("element 2", found[0])

    def test_a_nan_in_a_buffer(self):
        done, found = self.told("nan")
        self.assertEqual(len(found), 1, str(done))
        self.assertIn("loading.no_new_nan: mask at `stepped@3` of phase values on rank 1", found[0])

    def test_a_stale_save(self):
        done, found = self.told("stale")
        self.assertTrue(found and all("checkpoint.state_dict_whole" in line for line in found),
                        str(done))  # fmt: skip
        self.assertIn("at `saved@3.state_dict`", found[0])

    def test_a_weight_that_a_step_does_not_change(self):
        done, found = self.told("put_back")
        self.assertEqual(len(found), 1, str(done))
        self.assertIn("training.steps_act: first.weight at `stepped@1`", found[0])
        self.assertIn("although the step of AdamW takes", found[0])

    def test_with_strict_a_finding_fails_the_job(self):
        self.told("nan", code=1, options=["--strict"])

    def test_a_rank_that_raises(self):
        done, found = self.told("raises", code=1)
        self.assertEqual(done.err.count("shardproof: fail, "), 1, "one report\n" + str(done))
        self.assertIn("fault.every_rank_finishes: at `stepped`", found[0])  # its cause comes first
        self.assertIn("rank 1 of 2: subject: RuntimeError: lost my way", found[0])

    def test_an_exit_code_is_kept(self):
        done, found = self.told("exits", code=1)
        self.assertIn("exitcode  : 3", done.err)
        self.assertIn("exit code 3", "".join(found))
        self.write("end.py", "import sys; sys.exit(3)")
        self.assert_exit(self.run_python(*ATTACHED, "end.py"), 3)

    def test_a_rank_without_a_model_is_not_waited_for(self):
        done, found = self.told("apart", ranks=4)
        self.assertEqual(found, [], str(done))
        self.assertEqual(self.stages(rank=2), [])
        self.assertIn("stepped3", self.stages(rank=3))

    def test_a_failure_of_ours_stays_ours(self):
        (self.dir / "shardproof-evidence").write_text("a file where a folder is to be")
        done, found = self.told("none")
        self.assertIn("shardproof: attached, and observes no more: ", done.err)
        self.assertTrue((self.dir / "rank1.json").exists())
