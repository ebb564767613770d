"""audit of a run: which checkpoint a job can resume from, and whether training changed anything."""

import json
import shutil
import struct

import torch
from command import CommandTest
from safetensors.torch import save_file


class Runs(CommandTest):
    labels = "selftest framework"

    def trainer(self, step, value=None, ranks=1, state=True, folder=None):
        """A checkpoint of Transformers' Trainer."""
        value = float(step if value is None else value)
        at = self.dir / "run" / (folder or f"checkpoint-{step}")
        at.mkdir(parents=True)
        save_file({"w": torch.full((4,), value), "frozen": torch.ones(2)}, at / "model.safetensors")
        (at / "config.json").write_text("{}")
        if not state:
            return at
        torch.save({"state": {0: {"exp_avg": torch.full((4,), -value)}}}, at / "optimizer.pt")
        torch.save({"last_epoch": step}, at / "scheduler.pt")
        for rank in range(ranks):
            torch.save({"cpu": torch.get_rng_state()}, at / f"rng_state_{rank}.pth")
        (at / "trainer_state.json").write_text(json.dumps({"global_step": step}))
        return at

    def run_of(self, code):
        return self.judged("audit", "run", code=code)

    def test_what_is_for_one_checkpoint(self):
        self.trainer(100)
        self.trainer(200)
        for option in ("--config", "--finite"):
            self.refused("audit", "run", option, names=[option, "one checkpoint", "run"])

    def test_a_sound_run(self):
        for step in (100, 200, 1000):
            self.trainer(step)
        document = self.run_of(0)
        self.assertEqual(
            [one["name"] for one in document["checkpoints"]],
            ["checkpoint-100", "checkpoint-200", "checkpoint-1000"],
        )
        self.assertEqual([one["changed"] for one in document["checkpoints"]][1:], [2, 2])
        self.assertTrue(document["resume_from"].endswith("checkpoint-1000"))
        self.assertIn("resume from: run/checkpoint-1000", self.shardproof("audit", "run").out)

    def test_steps_that_changed_nothing(self):
        for step, value in ((90, 1), (110, 1), (120, 1)):
            self.trainer(step, value)
        document = self.run_of(1)
        self.assertEqual([one["same_as"] for one in document["checkpoints"]],
                         ["", "checkpoint-90", "checkpoint-90"])  # fmt: skip
        self.assertIn("expected training to have changed the model since checkpoint-90",
                      "".join(document["findings"]))  # fmt: skip
        document = self.judged("audit", "run", "--allow-same", "w", "--allow-same", "frozen",
                               "--allow-same", "optimizer.pt/*", code=0)  # fmt: skip

    def test_an_optimizer_that_stands_still(self):
        self.trainer(1)
        at = self.trainer(2)
        shutil.copy(self.dir / "run/checkpoint-1/optimizer.pt", at)
        (line,) = self.run_of(1)["findings"]
        self.assertIn("changed the optimizer state since checkpoint-1", line)

    def test_one_step_under_two_names_is_sound(self):
        self.trainer(100)
        at = self.trainer(200)
        shutil.copytree(at, self.dir / "run/best")
        (self.dir / "run/last").symlink_to("checkpoint-200")
        self.run_of(0)

    def test_what_callbacks_keep_is_no_part_of_the_model(self):
        """As Lightning writes it: scores of the best files, and random states."""
        (self.dir / "run").mkdir()
        for step, value in ((1, 1.0), (2, 2.0), (3, 2.0)):
            scores = {f"step={n}.ckpt": torch.tensor(n / 7) for n in range(step, step + 2)}
            torch.save(
                {"state_dict": {"w": torch.full((4,), value)}, "global_step": step,
                 "callbacks": {"ModelCheckpoint": {"best_k_models": scores}},
                 "rng_states": {"torch": torch.full((2,), step)}},
                self.dir / f"run/step={step}.ckpt")  # fmt: skip
        (found,) = self.run_of(1)["findings"]
        self.assertIn("step=3.ckpt: expected training to have changed the model since", found)

    def test_links_to_steps(self):
        for step in (10, 20):
            self.trainer(step)
        (self.dir / "run/last").symlink_to("checkpoint-20")
        (self.dir / "run/best").symlink_to("checkpoint-10")
        self.run_of(0)
        (self.dir / "run/last").unlink()
        for target, said in (("checkpoint-10", "newest"), ("checkpoint-30", "that is there")):
            (self.dir / "run/last").symlink_to(target)
            (found,) = self.run_of(1)["findings"]
            self.assertIn(said, found)
            (self.dir / "run/last").unlink()

    def test_a_killed_save(self):
        self.trainer(100, ranks=4)
        at = self.trainer(200, ranks=4)
        (at / "rng_state_3.pth").unlink()
        document = self.run_of(1)
        self.assertEqual(document["checkpoints"][1]["lacks"], ["rng_state_3.pth"])
        self.assertTrue(document["resume_from"].endswith("checkpoint-100"))
        done = self.shardproof("audit", "run", "--latest-good")
        self.assert_exit(done, 0)
        self.assertEqual(done.out.strip(), "run/checkpoint-100")
        self.assertIn("lacks rng_state_3.pth", done.err)

    def test_fewer_ranks_from_a_step_on_are_sound(self):
        self.trainer(100, ranks=4)
        self.trainer(200, ranks=4)
        self.trainer(300, ranks=2)
        self.run_of(0)

    def test_a_model_alone_at_the_end_is_no_damage_to_the_others(self):
        self.trainer(100)
        self.trainer(200)
        document = self.run_of(0)
        self.trainer(200, folder="final", state=False)
        document = self.run_of(0)
        self.assertEqual(len(document["checkpoints"]), 3)

    def test_a_cut_optimizer(self):
        self.trainer(100)
        at = self.trainer(200)
        data = (at / "optimizer.pt").read_bytes()
        (at / "optimizer.pt").write_bytes(data[:300])
        document = self.run_of(1)
        self.assertIn("optimizer.pt", document["checkpoints"][1]["damage"][0])

    def test_a_counter_that_says_another_step(self):
        self.trainer(100)
        at = self.trainer(200)
        (at / "trainer_state.json").write_text(json.dumps({"global_step": 100}))
        (line,) = self.run_of(1)["findings"]
        self.assertIn("checkpoint-200: expected its counter to say step 200, found 100", line)

    def test_another_runs_files(self):
        self.trainer(100)
        at = self.trainer(200)
        save_file({"w": torch.ones(5), "frozen": torch.ones(2)}, at / "model.safetensors")
        (line,) = self.run_of(1)["findings"]
        self.assertIn("'w' is F32 [5], was F32 [4]", line)


class SmallSteps(CommandTest):
    def step(self, step, value):
        """A checkpoint of one tensor, by hand: no torch is needed."""
        header = b'{"w":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}'
        data = struct.pack("<Q", len(header)) + header + struct.pack("<4f", *[value] * 4)
        self.write(f"run/checkpoint-{step}/model.safetensors", data)
        self.write(f"run/checkpoint-{step}/trainer_state.json", {"global_step": step})


class HeadersAlone(SmallSteps):
    """--headers: what is not there is seen, values are not looked at."""

    def test_values_are_not_read(self):
        for step in (1, 2):
            self.step(step, 7.0)
        self.judged("audit", "run", code=1)  # they are the same
        document = self.judged("audit", "run", "--headers", code=0)
        self.assertTrue(document["headers_only"])
        self.assertEqual([one["tensors"] for one in document["checkpoints"]], [1, 1])
        self.assertIn("SOUND, headers only", self.shardproof("audit", "run", "--headers").out)
        (tensor,) = self.judged("audit", "run/checkpoint-1", "--headers", code=0)["tensors"]
        self.assertNotIn("digest", tensor)

    def test_a_file_that_is_cut_is_seen(self):
        for step in (1, 2):
            self.step(step, float(step))
        file = self.dir / "run/checkpoint-2/model.safetensors"
        file.write_bytes(file.read_bytes()[:-4])
        (line,) = self.judged("audit", "run", "--headers", code=1)["checkpoints"][1]["damage"]
        self.assertIn("checkpoint-2/model.safetensors", line)


class ManySteps(SmallSteps):
    labels = "selftest timed nightly"

    def test_ten_thousand_take_less_than_ten_seconds(self):
        for step in range(1, 10_001):
            self.step(step, float(step))
        for words in ((), ("--headers",)):
            done = self.shardproof("audit", "run", *words)
            self.assert_exit(done, 0)
            self.assertIn("run: 10000 checkpoints", done.out)
            self.assertLess(done.seconds, 10)


class RunsOfMegatron(CommandTest):
    labels = "selftest framework"

    def setUp(self):
        super().setUp()
        import torch.distributed.checkpoint as dcp

        for step in (10, 20):
            at = self.dir / f"run/iter_{step:07}"
            dcp.save({"w": torch.full((4,), float(step))}, checkpoint_id=at)
            torch.save({"iteration": step}, at / "common.pt")
        self.tracker = self.dir / "run/latest_checkpointed_iteration.txt"
        self.tracker.write_text("20\n")

    def test_a_sound_run_of_megatron(self):
        self.assertEqual(self.judged("audit", "run", code=0)["findings"], [])

    def test_a_last_step_without_state_of_the_optimizer_is_sound_and_not_resumed_from(self):
        """In one DCP, where no file is missing: as torchtitan saves the last one."""
        import torch.distributed.checkpoint as dcp

        for step in (10, 20, 30):
            state = {"w": torch.full((4,), float(step))}
            if step < 30:
                state["optimizer"] = {"exp_avg": torch.full((4,), -float(step))}
            dcp.save(state, checkpoint_id=self.dir / f"titan/step-{step}")
        document = self.judged("audit", "titan", code=0)
        self.assertEqual(document["resume_from"], "titan/step-20")
        self.assertEqual([step["model_alone"] for step in document["checkpoints"]],
                         [False, False, True])  # fmt: skip
        for options in ((), ("--headers",)):
            done = self.shardproof("audit", "titan", "--latest-good", *options)
            self.assertEqual((done.code, done.out.strip()), (0, "titan/step-20"))
            self.assertIn("titan/step-30: cannot be resumed from: holds the model alone", done.err)

    def test_a_tracker_that_names_no_checkpoint(self):
        self.tracker.write_text("30")
        (line,) = self.judged("audit", "run", code=1)["findings"]
        self.assertIn("latest_checkpointed_iteration.txt: expected it to name a checkpoint", line)
        done = self.shardproof("audit", "run", "--latest-good")
        self.assertEqual((done.code, done.out.strip()), (0, "run/iter_0000020"))
        self.assertIn("latest_checkpointed_iteration.txt", done.err)

    def test_a_tracker_that_lags_behind(self):
        self.tracker.unlink()
        for name in (self.tracker.name, "latest_ckpt_global_step.txt"):  # Megatron's, SkyRL's
            tracker = self.tracker.with_name(name)
            tracker.write_text("10")
            (line,) = self.judged("audit", "run", code=1)["findings"]
            self.assertIn(f"{name}: expected it to name 'iter_0000020'", line)
            tracker.unlink()

    def test_state_beside_the_checkpoints(self):
        torch.save({"muon": torch.ones(2)}, self.dir / "run/layer_wise_optimizer_0.pt")
        (line,) = self.judged("audit", "run", code=1)["findings"]
        self.assertIn("layer_wise_optimizer_0.pt", line)

    def test_common_that_is_garbage(self):
        (self.dir / "run/iter_0000020/common.pt").write_bytes(b"PK garbage")
        document = self.judged("audit", "run", code=1)
        self.assertIn("common.pt", document["checkpoints"][1]["damage"][0])
