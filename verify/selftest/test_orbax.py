"""Checkpoints that Orbax wrote, with the real package; and the same ones damaged."""

import shutil

from command import CommandTest

WRITE = """
import jax.numpy as jnp, numpy as np, orbax.checkpoint as ocp, pathlib
here = str(pathlib.Path.cwd())
big = jnp.asarray(np.arange(210_000, dtype=np.float32).reshape(300, 700))
tree = {"params": {"w": jnp.arange(24, dtype=jnp.bfloat16).reshape(2, 3, 4)}, "step": 7,
        "opt": [jnp.zeros(3, jnp.int32), {"x": jnp.float32(3)}], "big": big}
with ocp.StandardCheckpointer() as writer:
    writer.save(here + "/plain", tree)
for name, how in {"files": {"use_ocdbt": False}, "zarr3": {"use_zarr3": True}}.items():
    ocp.Checkpointer(ocp.PyTreeCheckpointHandler(**how)).save(f"{here}/{name}", tree)
ocp.PyTreeCheckpointer().save(here + "/values", {**tree, "name": "a", "none": None, "empty": ()})
with ocp.CheckpointManager(here + "/run") as manager:
    manager.save(1, args=ocp.args.Composite(state=ocp.args.StandardSave({"w": big}),
                                            meta=ocp.args.JsonSave({"a": 1})))
"""


class OrbaxCheckpoints(CommandTest):
    labels = "selftest nightly"
    timeout_s = 240

    def setUp(self):
        super().setUp()
        self.python = self.python_of("orbax-checkpoint")
        self.assert_exit(self.run_process(self.python, "-c", WRITE, timeout=180), 0)

    def audited(self, name, code):
        return self.judged("audit", name, "--python", self.python, code=code)

    def test_are_read_as_they_were_written(self):
        plain = self.audited("plain", 0)
        self.assertEqual({tensor["name"]: tensor["dtype"] for tensor in plain["tensors"]},
                         {"big": "F32", "opt.0": "I32", "opt.1.x": "F32", "params.w": "BF16",
                          "step": "I64"})  # fmt: skip
        for name in ("files", "zarr3", "values"):
            self.assertEqual(self.audited(name, 0)["tensors"], plain["tensors"], name)
        self.assertEqual([tensor["name"] for tensor in self.audited("run/1", 0)["tensors"]],
                         ["state/w"])  # fmt: skip

    def test_what_is_lost_is_named(self):
        (self.dir / "files/big/0.0").unlink()
        (line,) = self.audited("files", 1)["damage"]
        self.assertIn("tensor 'big'", line)
        shutil.rmtree(self.dir / "plain/d")
        (self.dir / "plain/_METADATA").write_text("{")
        self.assertEqual(self.shardproof("audit", "plain", "--python", self.python).code, 2)
