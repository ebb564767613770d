"""A job that says nothing of Shardproof, attached: it comes to what it comes to alone, and what is
wrong in it is named."""

import json
import os
import re
import shutil
import sys
from pathlib import Path

from command import REPOSITORY, CommandTest, command

HERE = REPOSITORY / "verify" / "selftest"
EXAMPLES = REPOSITORY / "fixtures" / "examples"
TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node")
ATTACHED = ("-m", "shardproof.run")


class AttachedTest(CommandTest):
    python, seconds = sys.executable, 150

    def run_python(self, *words, folder="work"):
        where = self.root / folder
        where.mkdir(exist_ok=True)
        paths = [HERE, REPOSITORY / "verify" / "python"]
        return self.run_process(
            "env", "-C", where, self.python, *words, timeout=self.seconds,
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

    def assert_as_alone(self, script, *words, launcher=(*TORCHRUN, 2), options=()):
        """Numbers, random numbers and collectives. \\returns the run of the attached job."""
        alone = self.run_python(*launcher, script, *words, folder="alone")
        self.assert_exit(alone, 0)
        done = self.run_python(*launcher, *ATTACHED, *options, script, *words, folder="work")
        self.assert_exit(done, 0)
        self.assertEqual(self.came_to("work"), self.came_to("alone"))
        for rank in self.came_to("alone"):
            self.assertTrue(all(count > 0 for count in rank["collectives"]), rank)
        return done

    def assert_told_alike(self, script, *words, launcher=(*TORCHRUN, 2), options=()):
        """Of a job with a mistake: it comes to what it comes to alone, and its report names the
        tensor and the rank that shardproof.check names in the edited script. Of the sound job
        check has nothing to say."""
        edited = self.run_python(*launcher, script, *words, "edited", folder="edited")
        self.assert_exit(edited, 0)
        self.assertIn("Outcome(", edited.out)
        edited = self.run_python(*launcher, script, *words, "drift", "edited", folder="edited")
        self.assertEqual(edited.code, 1, str(edited))
        found = re.search(r"shardproof.check: (\S+) on rank 1: element", edited.err)
        self.assertTrue(found, str(edited))
        done = self.assert_as_alone(script, *words, "drift", launcher=launcher, options=options)
        lines = [line for line in done.err.splitlines() if line.startswith("FAIL")]
        self.assertTrue(lines and f": {found[1]} at `" in lines[0], str(done))
        self.assertTrue("rank 1" in lines[0], lines)

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


class Examples(AttachedTest):
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


class Sound(Examples):
    labels = "selftest multi-rank framework"
    timeout_s = 320

    def test_fsdp2(self):
        self.assert_silent(self.assert_as_alone(self.example("fsdp2_train.py")))
        self.assertEqual(self.stages()[::2], ["ready", "stepped1", "stepped3"])

    def test_transformers(self):
        self.assert_silent(self.assert_as_alone(HERE / "attached_trainer.py", "trainer"))
        self.assertIn("stepped1", self.stages())
        self.assertIn("saved2.state_dict", self.stages())


class MoreSound(Examples):
    labels = "selftest multi-rank framework nightly"
    timeout_s = 320

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

    def test_fsdp1(self):
        self.assert_silent(self.assert_as_alone(self.example("fsdp1_train.py")))
        self.assertEqual(self.stages()[::2], ["ready", "stepped1", "stepped3"])

    def test_spawned_ranks(self):
        job = (HERE / "attached_job.py", "none", "spawn")
        self.assert_silent(self.assert_as_alone(*job, launcher=()))
        self.assertIn("stepped1", self.stages(rank=1))

    def test_saves_of_averages_and_of_parts(self):
        for kind in ("average", "part"):
            with self.subTest(kind):
                shutil.rmtree(self.dir / "shardproof-evidence", ignore_errors=True)
                done = self.assert_as_alone(HERE / "attached_job.py", kind)
                self.assert_silent(done)
                is_of_model = kind == "average"
                self.assertEqual("saved3.state_dict" in self.stages(), is_of_model)
                not_judged = "what was saved is neither what the model is nor what it was"
                self.assertEqual(not_judged in done.err, is_of_model)

    def test_a_model_that_nothing_wraps(self):
        self.assert_silent(self.assert_as_alone(HERE / "attached_job.py", "plain"))
        self.assertEqual(self.stages()[::2][:2], ["ready", "stepped1"])
        self.assertIn("saved3.state_dict", self.stages())

    def test_accelerate(self):
        self.assert_silent(self.assert_as_alone(HERE / "attached_trainer.py", "accelerate"))
        self.assertIn("restored", self.stages())


class Memory(AttachedTest):
    labels = "selftest multi-rank framework nightly"
    timeout_s = 320

    def report(self):
        """Text and document of the report of the attached job."""
        (folder,) = (self.root / "work/shardproof-evidence").iterdir()
        done = self.run_process(
            command(), "report", folder, "--json", self.root / "result.json", timeout=60
        )
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


class Who(AttachedTest):
    """Under tracemalloc a job takes several times as long."""

    labels = "selftest multi-rank framework nightly"
    timeout_s = 900
    seconds = 400

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


class Nightly(Examples):
    labels = "selftest multi-rank framework nightly"
    timeout_s = 900
    seconds = 300

    def with_nan(self, name, before):
        """An example, edited and not, in which rank 1 writes a NaN after the last step. before: a
        condition, or a further step where there is one alone, since the first is observed at once.
        """
        line = "outcome = shardproof.check(model, optimizer=optimizer)"
        own = "getattr(each := next(model.parameters()), '_local_tensor', each).detach()"
        text = (EXAMPLES / name).read_text()
        (indent,) = re.findall(rf"^( +){re.escape(line)}", text, re.MULTILINE)
        mistake = f"dist.get_rank() == 1 and {own}.view(-1)[:1].fill_(torch.nan)"
        text = text.replace(line, f"{before}{mistake}\n{indent}{line}")
        edited, plain = self.root / f"edited_{name}", self.root / name
        edited.write_text(text)
        plain.write_text(text.replace(line, "outcome = ''").replace("import shardproof\n", ""))
        return edited, plain

    def test_examples_with_a_nan(self):
        for name, before in (
            ("fsdp2_train.py", "step == 2 and "), ("fsdp1_train.py", "step == 2 and "),
            ("dcp_resume.py", "train(model, optimizer)\n    "),
        ):  # fmt: skip
            with self.subTest(name):
                edited, plain = self.with_nan(name, before)
                said = self.run_python(*TORCHRUN, 2, edited)
                found = re.search(r"shardproof.check: (\S+) on rank 1: 1 NaN", said.err)
                self.assertTrue(found, str(said))
                done = self.attached(plain)
                self.assert_exit(done, 0)
                lines = [line for line in done.err.splitlines() if line.startswith("FAIL")]
                self.assertTrue(lines and f": {found[1]} at `" in lines[0], str(done))
                self.assertIn("on rank 1", lines[0])

    def test_a_trainer_with_a_drift(self):
        self.assert_told_alike(HERE / "attached_trainer.py", "trainer")

    def test_accelerate_with_a_drift(self):
        self.assert_told_alike(HERE / "attached_trainer.py", "accelerate")


class Lightning(AttachedTest):
    labels = "selftest multi-rank framework nightly"
    timeout_s = 900
    seconds = 300

    def setUp(self):
        super().setUp()
        self.python = self.python_of("lightning")

    def test_lightning(self):
        self.assert_silent(self.assert_as_alone(HERE / "attached_lightning.py", launcher=()))
        self.assertIn("stepped1", self.stages(rank=1))

    def test_lightning_with_a_drift(self):
        options = ("--at", "every=1")
        self.assert_told_alike(HERE / "attached_lightning.py", launcher=(), options=options)


class Ray(AttachedTest):
    labels = "selftest multi-rank framework nightly"
    timeout_s = 900
    seconds = 300

    def setUp(self):
        super().setUp()
        self.python = self.python_of("ray")

    def test_actors_of_ray(self):
        self.assert_silent(self.assert_as_alone(HERE / "attached_ray.py", launcher=()))
        self.assertIn("stepped1", self.stages(rank=1))

    def test_actors_of_ray_with_a_drift(self):
        done = self.assert_as_alone(HERE / "attached_ray.py", "drift", launcher=())
        lines = [line for line in done.err.splitlines() if line.startswith("FAIL")]
        self.assertTrue(lines and ": weight at `stepped@3`" in lines[0], str(done))
        self.assertIn("rank 1 of 2", lines[0])


class Mistakes(AttachedTest):
    labels = "selftest multi-rank framework"
    timeout_s = 160

    def told(self, mistake, *, code=0, **options):
        """Runs the job with a mistake. \\returns the lines of its report."""
        done = self.attached(HERE / "attached_job.py", mistake, **options)
        self.assertEqual(done.code, code, str(done))
        return done, [line for line in done.err.splitlines() if line.startswith("FAIL")]

    def nan_is_told(self, kind):
        done, found = self.told(kind)
        self.assertEqual(len(found), 1, str(done))
        where = "mask at `stepped@3` of phase values on rank 1"
        self.assertIn(f"loading.no_new_nan: {where}", found[0])

    def test_a_replica_that_was_changed(self):
        done, found = self.told("replica")
        self.assertEqual(len(found), 1, str(done))
        self.assertIn("sharding.ranks_match_rank0: first.bias at `stepped@3`", found[0])
        self.assertIn("rank 1 of 2", found[0])
        self.assertIn("element 2", found[0])

    def test_a_nan_in_a_buffer(self):
        self.nan_is_told("nan")

    def test_a_stale_save(self):
        done, found = self.told("stale")
        self.assertTrue(found and all("checkpoint.state_dict_whole" in line for line in found),
                        str(done))  # fmt: skip
        self.assertIn("at `saved@3.state_dict`", found[0])

    def test_with_strict_a_finding_fails_the_job(self):
        self.told("nan", code=1, options=["--strict"])
        words = ("--strict", *TORCHRUN, 2, HERE / "attached_job.py", "nan")  # reported by a rank
        self.assert_exit(self.run_python(*ATTACHED, *words), 1)

    def test_a_rank_without_a_model_is_not_waited_for(self):
        done, found = self.told("apart", ranks=4)
        self.assertEqual(found, [], str(done))
        self.assertEqual(self.stages(rank=2), [])
        self.assertIn("stepped3", self.stages(rank=3))

    def test_a_failure_of_ours_stays_ours(self):
        (self.dir / "shardproof-evidence").write_text("a file where a folder is to be")
        done, found = self.told("none")
        self.assertIn("the job goes on unobserved, after an error of Shardproof: ", done.err)
        self.assertTrue((self.dir / "rank1.json").exists())


class MoreMistakes(Mistakes):
    labels = "selftest multi-rank framework nightly"
    timeout_s = 160

    def test_a_weight_that_a_step_does_not_change(self):
        done, found = self.told("put_back")
        self.assertEqual(len(found), 1, str(done))
        self.assertIn("training.steps_act: first.weight at `stepped@1`", found[0])
        self.assertIn("although the step of AdamW takes", found[0])

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

    def test_a_nan_in_a_buffer_of_a_plain_model(self):
        self.nan_is_told("plain_nan")
