"""The nightly scripts: ci/launchers/night as cron starts it, ci/launchers/slurm.sbatch by a
stand-in for srun, and ci/launchers/torchrun. Nodes are network namespaces with a cable between."""

import json
import os
import signal
import subprocess
import sys
import time

from command import REPOSITORY, CommandTest, checkpoint, command

LAUNCHERS = REPOSITORY / "ci" / "launchers"
SMOKE = REPOSITORY / "fixtures" / "cases" / "smoke.json"
# A node has a name, and finds the others by it: no name server is there to be asked.
HOLD = """hostname {name} && mount --bind {folder}/hosts /etc/hosts &&
mount --bind {folder}/nsswitch.conf /etc/nsswitch.conf && echo up && exec sleep 600"""
ENTER = ("nsenter", "--net", "--uts", "--mount", "--target")
# Tells each task its place as srun does, on the node of its number; passes SIGTERM on, and ends
# with the worst exit code of its tasks.
SRUN = """#!/usr/bin/env bash
[[ $1 == --kill-on-bad-exit=0 ]] || exit 9
shift
tasks=()
trap 'kill -TERM "${tasks[@]}" 2>/dev/null' TERM
nodes=($NODES)
for i in "${!nodes[@]}"; do
  SLURM_PROCID=$i SLURM_STEP_NUM_TASKS=${#nodes[@]} SLURM_LOCALID=0 \\
    nsenter --net --uts --mount --target "${nodes[i]}" -- \\
    sh -c 'cd "$0" && exec "$@"' "$PWD" "$@" &
  tasks+=($!)
done
worst=0
for task in "${tasks[@]}"; do
  code=0
  wait "$task" || code=$?
  while kill -0 "$task" 2>/dev/null; do code=0; wait "$task" || code=$?; done
  (( code > worst )) && worst=$code
done
exit $worst
"""


class Night(CommandTest):
    """What cron starts: one command on one machine."""

    labels = "selftest multi-rank"
    timeout_s = 180

    def night(self, *words, code, **variables):
        done = self.run_process(LAUNCHERS / "night", *words, SHARDPROOF=command(), timeout=120,
                                **variables)  # fmt: skip
        self.assert_exit(done, code)
        return done

    def runs(self):
        return sorted(path.name for path in (self.dir / "runs").iterdir() if path.is_dir())

    def test_a_night_that_passed_is_the_next_ones_measure(self):
        words = ("runs", command(), "verify", "--case", SMOKE)
        self.night(*words, code=0)
        for name in ("baseline.json", "shardproof.prom"):
            self.assertTrue((self.dir / "runs" / name).is_file(), name)
        first = (self.dir / "runs" / "baseline.json").read_text()
        time.sleep(1.1)  # the next one's name
        done = self.night(*words, "--property", "loading.equals_source", code=3)
        self.assertIn("compared in the baseline, but not now", done.out)
        self.assertEqual((self.dir / "runs" / "baseline.json").read_text(), first)
        self.assertEqual(len(self.runs()), 2)
        self.assertTrue((self.dir / "runs" / self.runs()[1] / "summary.md").is_file())
        time.sleep(1.1)
        self.night(*words, code=0, KEEP="1", OLDER="0s")
        self.assertEqual(len(self.runs()), 1)

    def test_known_failures_beside_the_reports(self):
        flip = ("--inject", "file/flip@embed.weight:3")
        self.night("runs", command(), "verify", "--case", SMOKE, *flip, code=1)
        self.assertFalse((self.dir / "runs" / "baseline.json").exists())
        every = {"tensor": "*", "kind": "differs", "owner": "a", "issue": "b",
                 "expires": "2099-01-01"}  # fmt: skip
        names = ("loading.equals_source", "loading.efficient_equals_plain",
                 "checkpoint.round_trip", "checkpoint.reshard")  # fmt: skip
        self.write("runs/known.json", {"schema": 1, "known": [
            {"property": name, **every} for name in names]})  # fmt: skip
        time.sleep(1.1)
        self.night("runs", command(), "verify", "--case", SMOKE, *flip, code=0)

    def test_the_end_of_its_time_is_inconclusive(self):
        self.write("slow.sh", "exec sleep 60\n")
        process = self.start([LAUNCHERS / "night", "runs", "sh", self.dir / "slow.sh"], "night",
                             SHARDPROOF=command())  # fmt: skip
        time.sleep(1)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 3, err)
        self.assertIn("ended by a signal", err)
        page = self.dir / "runs" / self.runs()[0] / "summary.md"
        self.assertIn("inconclusive", page.read_text())

    def test_bad_input_is_one_line(self):
        for words in ((), ("runs",), (SMOKE, "true")):
            done = self.night(*words, code=2)
            self.assertIn("night: ", done.err)
        (self.dir / "runs").mkdir()
        holder = subprocess.Popen(["flock", "--no-fork", self.dir / "runs" / ".lock", "sh", "-c",
                                   "echo held; exec sleep 60"],
                                  cwd="/", stdout=subprocess.PIPE)  # fmt: skip
        self.addCleanup(holder.communicate)
        self.addCleanup(holder.kill)
        self.assertEqual(holder.stdout.readline(), b"held\n")
        done = self.night("runs", "true", code=2)
        self.assertIn("another night is still running", done.err)


class OnTwoNodes(CommandTest):
    labels = "selftest multi-rank framework"
    fixtures = "checkpoints"
    timeout_s = 240

    def setUp(self):
        super().setUp()
        self.nodes = []
        (self.root / "nsswitch.conf").write_text("hosts: files\n")
        (self.root / "hosts").write_text(
            "127.0.0.1 localhost\n10.77.0.1 node-a\n10.77.0.2 node-b\n"
        )
        for name in ("node-a", "node-b"):
            words = [
                "unshare",
                "--net",
                "--uts",
                "--mount",
                "sh",
                "-c",
                HOLD.format(name=name, folder=self.root),
            ]
            node = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            self.addCleanup(lambda one=node: (one.kill(), one.communicate()))
            if node.stdout.readline() != b"up\n":
                self.skipTest("network namespaces cannot be made here")
            self.nodes.append(str(node.pid))
        first, second = self.nodes
        cable = [["ip", "link", "add", "sp0", "netns", first, "type", "veth",
                  "peer", "name", "sp0", "netns", second]]  # fmt: skip
        for pid, address in ((first, "10.77.0.1/24"), (second, "10.77.0.2/24")):
            enter = ["nsenter", "--net", "--target", pid, "--", "ip"]
            cable.append([*enter, "addr", "add", address, "dev", "sp0"])
            cable += [[*enter, "link", "set", one, "up"] for one in ("sp0", "lo")]
        for words in cable:
            done = subprocess.run(words, capture_output=True, text=True)
            if done.returncode:
                self.skipTest(f"no cable can be laid between namespaces: {done.stderr.strip()}")

    def on(self, node, words):
        inside = ("sh", "-c", 'cd "$0" && exec "$@"', self.dir)
        return [*ENTER, self.nodes[node], "--", *inside, *words]

    def check(self, hosts=2):
        (run,) = [path for path in (self.dir / "runs").iterdir() if path.is_dir()]
        result = json.loads((run / "result.json").read_text())
        self.assertEqual((result["verdict"], result["compared"]["ranks"]), ("pass", 2))
        self.assertEqual(result["compared"]["hosts"], hosts)
        for name in ("report.html", "junit.xml", "summary.md"):
            self.assertTrue((run / name).is_file(), name)
        self.assertTrue((self.dir / "runs" / "baseline.json").is_file())

    def slurm(self, **variables):
        """The batch script, as sbatch starts it on the first node."""
        self.write("bin/srun", SRUN).chmod(0o755)
        variables = {
            "PATH": f"{self.dir}/bin:{os.environ['PATH']}", "NODES": " ".join(self.nodes),
            "SLURM_JOB_ID": "12", "MASTER_ADDR": "10.77.0.1", "RUNS": str(self.dir / "runs"),
            "SHARDPROOF_CHECKOUT": str(REPOSITORY), "SHARDPROOF": command(),
            **variables}  # fmt: skip
        return self.start([LAUNCHERS / "slurm.sbatch"], "slurm", **variables)

    def test_slurm_writes_one_report_for_all_nodes(self):
        process = self.slurm(COMMAND=f"verify --checkpoint {checkpoint('qwen3-small')}")
        out, err = process.communicate(timeout=100)
        self.assertEqual(process.returncode, 0, out + err)
        self.assertEqual(out.count("\npass: "), 1, out)
        self.check()

    def test_slurm_ends_the_ranks_when_its_time_is_up(self):
        subject = self.write(
            "s.py", "import time\n\ndef run(case, observe):\n    time.sleep(120)\n"
        )
        began = time.monotonic()
        process = self.slurm(COMMAND=f"verify --subject {subject} --python {sys.executable} "
                                     f"--checkpoint {checkpoint('qwen3-small')}")  # fmt: skip
        time.sleep(5)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 3, out + err)
        self.assertIn("ended by a signal", err)
        self.assertLess(time.monotonic() - began, 60)

    def test_torchrun_on_two_nodes(self):
        python = os.environ["SHARDPROOF_TORCH_PYTHON"]
        processes = []
        for node in (0, 1):
            words = [LAUNCHERS / "torchrun", "runs", 2, node, 1, "10.77.0.1:29511", "verify",
                     "--checkpoint", checkpoint("qwen3-small")]  # fmt: skip
            processes.append(self.start(self.on(node, words), "torchrun", SHARDPROOF=command(),
                                        TORCHRUN=f"{python} -m torch.distributed.run"))  # fmt: skip
        ends = [process.communicate(timeout=100) for process in processes]
        self.assertEqual([process.returncode for process in processes], [0, 0], ends)
        self.assertIn("pass: ", ends[0][0])
        self.assertNotIn("pass: ", ends[1][0])
        self.check()
