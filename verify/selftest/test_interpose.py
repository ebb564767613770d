"""The interposer for CUDA and NCCL, on doubles of the two libraries: each act on each function."""

import os
import re
import sys

from command import REPOSITORY, wait_until
from interposed import DOUBLES, InterposedTest

TABLE = REPOSITORY / "verify" / "interpose" / "functions.inc"
FUNCTIONS = re.findall(r"^[A-Z_0-9]+_FUNCTION\((\w+), (\w+),", TABLE.read_text(), re.M)
FILLING = ("kCopies", "kCollective")
UNTOUCHED = 0x42CA000042C80000  # what lies where a result is to come: 100.0 and 101.0


def outcome(done):
    """(code, the first bytes of the result as a number or None) of `call NAME`."""
    _, code, *result = done.out.split()
    return int(code), int.from_bytes(bytes.fromhex(result[0]), "little") if result else None


def lines(done):
    return sorted(done.out.splitlines())


class EveryFunction(InterposedTest):
    labels = "selftest fault"

    def test_is_one_that_the_program_calls(self):
        called = self.double(None, "names").out.split()
        self.assertEqual(sorted(called), sorted(name for name, _ in FUNCTIONS))

    def test_is_passed_on(self):
        for name, kind in FUNCTIONS:
            plain = self.run_process(DOUBLES / "interpose_program", "call", name)
            self.assertEqual(outcome(plain)[0], 0, name)
            self.assertEqual(outcome(plain)[1] is not None, kind in FILLING, name)
            self.assertEqual(self.double(None, "call", name).out, plain.out)
            # Looked at, and not struck.
            self.assertEqual(self.double(f"{name}:error=7,call=99", "call", name).out, plain.out)
            self.assertEqual(self.firings(), [])

    def test_returns_the_error_without_being_called(self):
        for name, kind in FUNCTIONS:
            done = self.double(f"{name}:error=7", "call", name)
            code, result = outcome(done)
            self.assertEqual(code, 7, name)
            if kind in FILLING:
                self.assertEqual(result, UNTOUCHED, name)
            [firing] = self.firings()
            self.assertEqual(firing["fault"], f"{name}:error=7")
            self.assertEqual((firing["function"], firing["call"]), (name, 0))

    def test_has_the_bit_of_its_result_flipped(self):
        for name, kind in FUNCTIONS:
            if kind not in FILLING:
                continue
            plain = outcome(self.double(None, "call", name))
            for bit in (0, 37):
                struck = outcome(self.double(f"{name}:flip={bit}", "call", name))
                self.assertEqual(struck, (0, plain[1] ^ 1 << bit), name)
                self.assertEqual(len(self.firings()), 1, self.firings())
            self.double(f"{name}:flip=512", "call", name)  # behind the result's 64 bytes
            self.assertEqual(self.firings(), [], name)

    def test_is_left_out_or_late(self):
        for name, kind in FUNCTIONS:
            done = self.double(f"{name}:delay=30", "call", name)
            self.assertEqual((done.code, outcome(done)[0]), (0, 0), name)
            if kind in ("kGives", "kAsks"):
                continue
            code, result = outcome(self.double(f"{name}:drop", "call", name))
            self.assertEqual(code, 0, name)
            if kind in FILLING:
                self.assertEqual(result, UNTOUCHED, name)
            self.assertEqual([f["function"] for f in self.firings()], [name])

    def test_does_not_return(self):
        marks, waiting = [], {}
        for name, _ in FUNCTIONS:
            log = self.dir / name
            variables = {**self.variables(f"{name}:hang"), "SHARDPROOF_INTERPOSE_LOG": str(log)}
            marks.append(f"{name}-{os.getpid()}")
            self.addCleanup(self.end, marks[-1])
            process = self.start(
                [DOUBLES / "interpose_program", "call", name], marks[-1], **variables
            )
            self.addCleanup(process.communicate)
            waiting[name] = (process, log)
        for name, (process, log) in waiting.items():
            self.assertTrue(wait_until(lambda log=log: log.exists() and log.read_text(), 30), name)
            self.assertIsNone(process.poll(), name)
        for mark in marks:
            self.end(mark)
        for name, (process, log) in waiting.items():
            out, _ = process.communicate()
            self.assertEqual((process.returncode, out), (-9, ""), name)
            self.assertEqual(len(log.read_text().splitlines()), 1, name)

    def test_has_its_communicator_report_an_error(self):
        for name, kind in FUNCTIONS:
            if kind in ("kCollective", "kSends", "kCommunicator", "kAsks"):
                done = self.double(f"{name}:async-error=6", "call", name)
                self.assertEqual(outcome(done)[0], 0, name)
                self.assertEqual([f["function"] for f in self.firings()], [name])


class Ranks(InterposedTest):
    """Two ranks that all-reduce: rank + 1 times round + 1, so 3 and 6."""

    labels = "selftest fault"
    WHOLE = ["rank 0 async 0", "rank 0 round 0 code 0 value 3", "rank 0 round 1 code 0 value 6",
             "rank 1 async 0", "rank 1 round 0 code 0 value 3",
             "rank 1 round 1 code 0 value 6"]  # fmt: skip

    def ranks(self, rules, *words, **more):
        return lines(self.double(rules, "ranks", 2, 2, *words, **more))

    def expected(self, **changed):
        """WHOLE with the lines that begin so ending so: rank_1_round_0="code 0 value 4"."""
        begun = {key.replace("_", " ") + " ": value for key, value in changed.items()}
        replaced = [next((b + v for b, v in begun.items() if line.startswith(b)), line)
                    for line in self.WHOLE]  # fmt: skip
        return sorted(replaced)

    def test_undisturbed(self):
        self.assertEqual(self.ranks(None), self.WHOLE)
        self.assertEqual(self.ranks("ncclAllReduce:drop,rank=2"), self.WHOLE)
        self.assertEqual(self.firings(), [])

    def test_a_dropped_collective_meets_the_peers_next(self):
        out, _ = self.kill_when(lambda: self.logged("}\n"), "ncclAllReduce:drop,rank=1",
                                "ranks", 2, 2, quiet_s=0.5)  # fmt: skip
        # Rank 1 keeps its 2, and gives its 4 where rank 0 gives 1; rank 0's next one stays alone.
        self.assertEqual(sorted(out.splitlines()),
                         ["rank 0 round 0 code 0 value 5", "rank 1 async 0",
                          "rank 1 round 0 code 0 value 2",
                          "rank 1 round 1 code 0 value 5"])  # fmt: skip
        self.assertEqual(self.firings(), [{
            "fault": "ncclAllReduce:drop,rank=1", "function": "ncclAllReduce", "call": 0, "rank": 1,
            "bytes": 16, "detail": "not called, it returns success"}])  # fmt: skip

    def test_a_peer_that_waits_in_vain_is_ended_by_abort(self):
        done = self.double("ncclAllReduce:drop,rank=1,call=1", "ranks", 2, 2, "abort")
        self.assertIn("rank 0 round 1 code 6 value 2", lines(done))
        self.assertIn("rank 1 round 1 code 0 value 4", lines(done))

    def test_an_abort_that_hangs_ends_nothing(self):
        rules = "ncclAllReduce:drop,rank=1,call=1;ncclCommAbort:hang"
        self.kill_when(lambda: self.logged("ncclCommAbort"), rules, "ranks", 2, 2, "abort",
                       quiet_s=0.5)  # fmt: skip

    def test_a_hang_is_on_record_and_ends_by_a_signal(self):
        out, _ = self.kill_when(lambda: self.logged("}\n"), "ncclAllReduce:hang,rank=1,call=1",
                                "ranks", 2, 2, quiet_s=0.5)  # fmt: skip
        self.assertEqual(sorted(out.splitlines()), ["rank 0 round 0 code 0 value 3",
                                                    "rank 1 round 0 code 0 value 3"])  # fmt: skip
        [firing] = self.firings()
        self.assertEqual((firing["call"], firing["rank"]), (1, 1))

    def test_a_bounded_hang_and_a_delay_go_on(self):
        for rule in ("ncclAllReduce:hang=1,rank=1", "ncclAllReduce:delay=1000,rank=0"):
            done = self.double(rule, "ranks", 2, 2)
            self.assertEqual(lines(done), self.WHOLE)
            self.assertGreaterEqual(done.seconds, 1)

    def test_a_flipped_bit_is_on_one_rank(self):
        # Bit 31 of the first float is its sign; the memory is the device's.
        flipped = self.expected(rank_1_round_1="code 0 value -6")
        self.assertEqual(self.ranks("ncclAllReduce:flip=31,rank=1,call=1"), flipped)
        # What is begun in a group is there when the group ends.
        self.assertEqual(self.ranks("ncclAllReduce:flip=31,rank=1,call=1", "group"), flipped)
        self.assertEqual(len(self.firings()), 1)
        both = self.expected(rank_0_round_0="code 0 value -3", rank_0_round_1="code 0 value -6")
        self.assertEqual(self.ranks("ncclAllReduce:flip=31,rank=0,then-on"), both)

    def test_a_communicator_reports_an_error_from_then_on(self):
        broken = self.expected(rank_1_async="6")
        rule = "ncclAllReduce:async-error=ncclRemoteError,rank=1,call=1"
        self.assertEqual(self.ranks(rule), broken)
        self.assertEqual(self.ranks("ncclCommGetAsyncError:async-error=6,rank=1"), broken)
        self.assertEqual(self.ranks("ncclAllReduce:async-error=6,rank=1,call=2"), self.WHOLE)

    def test_a_rank_is_not_made(self):
        done, _ = self.kill_when(lambda: self.logged("}\n"),
                                 "ncclCommInitRank:error=ncclSystemError,rank=1", "ranks", 2, 1,
                                 quiet_s=0.5)  # fmt: skip
        self.assertEqual(done.splitlines(), ["rank 1 made 2"])
        self.assertEqual(self.firings()[0]["rank"], 1)

    def test_the_launchers_rank_comes_first(self):
        # One of the two threads: whichever comes first.
        for variables in ({"RANK": "3", "LOCAL_RANK": "1"}, {"SLURM_PROCID": "3"},
                          {"OMPI_COMM_WORLD_RANK": "3"}, {"LOCAL_RANK": "3"}):  # fmt: skip
            out = self.ranks("ncclAllReduce:delay=1,rank=3;ncclAllReduce:drop,rank=1", **variables)
            self.assertEqual(out, self.WHOLE)
            self.assertEqual([f["rank"] for f in self.firings()], [3])

    def test_bytes_are_at_least(self):
        self.assertEqual(self.ranks("cudaMalloc:error=2,bytes=17"), self.WHOLE)
        self.ranks("cudaMalloc:delay=1,bytes=16")
        self.assertEqual([f["bytes"] for f in self.firings()], [16])


class Counting(InterposedTest):
    labels = "selftest fault"

    def test_one_call_of_many_threads_is_the_nth(self):
        done = self.double("cudaDeviceSynchronize:error=719,call=2500", "threads", 4, 1000)
        self.assertEqual(done.out, "failed 1\n")
        self.assertEqual([f["call"] for f in self.firings()], [2500])
        done = self.double("cudaDeviceSynchronize:error=719,call=3990,then-on", "threads", 4, 1000)
        self.assertEqual(done.out, "failed 10\n")
        self.assertEqual(sorted(f["call"] for f in self.firings()), list(range(3990, 4000)))

    def test_a_forked_process_counts_anew(self):
        done = self.double("cudaMalloc:error=2,call=1", "fork")
        self.assertEqual(done.out, "parent 0\nparent 2\nchild 0\nchild 2\n")
        self.assertEqual([f["call"] for f in self.firings()], [1, 1])

    def test_calls_of_the_library_itself_count(self):
        done = self.double("ncclBroadcast:error=3", "call", "ncclBcast")
        self.assertEqual(outcome(done)[0], 3)

    def test_several_rules_strike_one_call(self):
        done = self.double(
            "cudaMemcpy:delay=1;cudaMemcpy:flip=0;cudaMemcpy:flip=1", "call", "cudaMemcpy"
        )
        self.assertEqual(outcome(done)[1] & 3, 3)
        self.assertEqual(len(self.firings()), 3)


class NotStruck(InterposedTest):
    """What cannot be done is told, and does not look as if it had been."""

    labels = "selftest fault"

    def refused(self, rules, *names, **more):
        done = self.double(rules, "call", "cudaMalloc", **more)
        self.assert_exit(done, 2)
        self.assertEqual(done.out, "", "the program has begun")
        self.assertEqual(len(done.err.splitlines()), 1, str(done))
        for name in ("shardproof_interpose: ", *names):
            self.assertIn(name, done.err)

    def test_a_wrong_rule_ends_the_program_before_it_begins(self):
        self.refused("cudaMaloc:error=2", "SHARDPROOF_INTERPOSE", "'cudaMaloc'", "expected")
        self.refused("cudaMalloc:eror=2", "'eror=2'", "expected error=CODE")
        self.refused("", "a rule is empty")
        self.refused("cudaMalloc:error=2\ncudaMalloc:error=2", "\\x0a")

    def test_a_log_that_cannot_be_written_does_too(self):
        log = {"SHARDPROOF_INTERPOSE_LOG": str(self.dir / "absent" / "log")}
        done = self.run_process(DOUBLES / "interpose_program", "names",
                                **{**self.variables("cudaMalloc:error=2"), **log})  # fmt: skip
        self.assert_exit(done, 2)
        self.assertIn("absent/log cannot be written: No such file or directory", done.err)

    def test_what_is_not_on_record_does_not_act(self):
        done = self.run_process(DOUBLES / "interpose_program", "call", "cudaMalloc",
                                **{**self.variables("cudaMalloc:error=2"),
                                   "SHARDPROOF_INTERPOSE_LOG": "/dev/full"})  # fmt: skip
        self.assertEqual(done.out, "cudaMalloc 0 \n")
        self.assertIn("does not act", done.err)
        self.assertIn("No space left on device", done.err)

    def test_a_flip_of_a_call_that_failed_is_undone_on_record(self):
        script = (
            "import ctypes; buffer = ctypes.create_string_buffer(8); "
            "print(ctypes.CDLL(None).cudaMemcpy(buffer, buffer, ctypes.c_size_t(8), 0))"
        )
        done = self.struck("cudaMemcpy:flip=0", sys.executable, "-c", script)
        self.assertEqual(done.out, "302\n", str(done))  # there is no libcudart
        self.assertEqual([set(f) >= {"undone"} for f in self.firings()], [False, True])
        self.assertEqual(self.firings()[1]["undone"], "the call itself returned 302")

    def test_without_a_log_firings_are_on_stderr(self):
        done = self.run_process(
            DOUBLES / "interpose_program", "call", "cudaMalloc",
            LD_PRELOAD=self.variables(None)["LD_PRELOAD"],
            SHARDPROOF_INTERPOSE="cudaMalloc:error=cudaErrorMemoryAllocation",
        )  # fmt: skip
        self.assertEqual(done.out, "cudaMalloc 2 \n")
        self.assertIn('"detail": "not called, it returns cudaErrorMemoryAllocation"', done.err)
