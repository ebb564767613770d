"""Runs programs under the interposer, for the self-tests of it."""

import json
import os
import time
from pathlib import Path

from command import CommandTest, wait_until

BUILD = Path(os.environ["SHARDPROOF_BUILD"])
LIBRARY = BUILD / "libshardproof_interpose.so"
DOUBLES = BUILD / "verify" / "interpose" / "doubles"
FIU = Path("/usr/lib/fiu/fiu_posix_preload.so")
VARIABLES = ("SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "LD_PRELOAD")


class InterposedTest(CommandTest):
    """A test that needs the interposer, with a log of its own."""

    def setUp(self):
        if not LIBRARY.exists():
            self.skipTest("no interposer: the torch that was built against has no CUDA headers")
        super().setUp()
        self.log = self.dir / "log"

    def environment(self, mark, **variables):
        kept = super().environment(mark, **variables)
        return {k: v for k, v in kept.items() if k in variables or k not in VARIABLES}

    def variables(self, rules, preload=(), **more):
        """The environment of a program with these rules; None: without any, but with the
        library."""
        chosen = {"LD_PRELOAD": ":".join(str(path) for path in (LIBRARY, *preload)), **more}
        if rules is not None:
            chosen.update(SHARDPROOF_INTERPOSE=rules, SHARDPROOF_INTERPOSE_LOG=str(self.log))
        return chosen

    def struck(self, rules, *words, preload=(), timeout=20, **more):
        """Runs a program with these rules to its end."""
        self.log.unlink(missing_ok=True)
        return self.run_process(*words, timeout=timeout, **self.variables(rules, preload, **more))

    def double(self, rules, *words, **more):
        """Runs the program that is linked to the doubles."""
        return self.struck(rules, DOUBLES / "interpose_program", *words, **more)

    def firings(self):
        """What is on record."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def logged(self, text):
        return self.log.exists() and text in self.log.read_text()

    def kill_when(self, holds, rules, *words, quiet_s=0.0):
        """Starts the program on the doubles and kills it when this holds, and then for so long."""
        mark = f"{os.getpid()}-{time.monotonic_ns()}"
        program = DOUBLES / "interpose_program"
        process = self.start([program, *words], mark, **self.variables(rules))
        try:
            self.assertTrue(wait_until(holds, 20), "the program did not get there")
            time.sleep(quiet_s)
            self.assertIsNone(process.poll(), "the program has ended")
        finally:
            process.kill()
            out, err = process.communicate()
        return out, err
