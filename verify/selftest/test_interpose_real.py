"""The interposer before the real libraries: those of torch, and libfiu's POSIX preload."""

import os
import sys
import time

from interposed import DOUBLES, FIU, InterposedTest

# Of torch's own libraries, as torch calls them: by their symbols.
LOADED = "import ctypes, torch; every = ctypes.CDLL(None); "
MALLOC = LOADED + "print(every.cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(64)))"
UNIQUE_ID = (
    "import torch\ntry: print(len(torch.cuda.nccl.unique_id()))\nexcept RuntimeError as e: print(e)"
)
INIT = LOADED + ("print(every.ncclCommInitRankConfig(ctypes.byref(ctypes.c_void_p()), -1, "
                 "(ctypes.c_char * 128)(), 0, None))")  # fmt: skip


class Loaded(InterposedTest):
    """Libraries that are not there when the program begins."""

    labels = "selftest fault framework"
    SCRIPT = ("import ctypes, os\n"
              "call = lambda: ctypes.CDLL(None).cudaDeviceSynchronize()\n"
              "print(call(), ctypes.CDLL(None).ncclGroupStart())\n"
              "ctypes.CDLL('{0}/libcudart.so.13', mode=os.RTLD_LOCAL); print(call())\n"
              "ctypes.CDLL('{0}/libnccl.so.2', mode=os.RTLD_LOCAL)\n"
              "print(ctypes.CDLL(None).ncclGroupStart())")  # fmt: skip

    def test_are_found_when_they_come(self):
        [cudart] = DOUBLES.glob("libcudart.so.*")
        script = self.SCRIPT.replace("libcudart.so.13", cudart.name).format(DOUBLES)
        done = self.struck(None, sys.executable, "-c", script)
        # 302: cudaErrorSharedObjectSymbolNotFound; 2: ncclSystemError.
        self.assertEqual(done.out.splitlines(), ["302 2", "0", "0"], str(done))
        self.assertIn(
            "cudaDeviceSynchronize was called, and the program has loaded no libcudart.so", done.err
        )
        done = self.struck("cudaDeviceSynchronize:error=719,call=1", sys.executable, "-c", script)
        self.assertEqual(done.out.splitlines(), ["302 2", "719", "0"], str(done))


class Torch(InterposedTest):
    labels = "selftest fault framework"
    timeout_s = 180

    def python(self, rules, script):
        done = self.struck(rules, sys.executable, "-c", script, timeout=60)
        self.assert_exit(done, 0)
        return done.out.strip()

    def test_is_as_before(self):
        script = "import torch; print(torch.arange(6.).reshape(2, 3) @ torch.ones(3, 2))"
        plain = self.run_process(sys.executable, "-c", script).out.strip()
        self.assertEqual(self.python(None, script), plain)
        self.assertEqual(self.python("cudaMalloc:error=2;ncclAllReduce:drop", script), plain)

    def test_calls_reach_its_libraries(self):
        """What comes back is theirs: without a GPU an error of the driver's absence, else
        success."""
        real = int(self.python(None, MALLOC))
        self.assertNotIn(real, (2, 302))
        self.assertEqual(self.python("cudaMalloc:error=cudaErrorMemoryAllocation", MALLOC), "2")
        self.assertEqual([f["bytes"] for f in self.firings()], [64])
        # NCCL itself, asked for a communicator of -1 ranks.
        real = int(self.python(None, INIT))
        self.assertNotIn(real, (0, 2, 6))
        self.assertEqual(self.python("ncclCommInitRankConfig:error=ncclRemoteError", INIT), "6")

    def test_calls_nccl_through_it(self):
        """By torch's own code: torch.cuda.nccl is bound to libnccl by its symbols."""
        plain = self.run_process(sys.executable, "-c", UNIQUE_ID, timeout=60).out.strip()
        self.assertEqual(self.python(None, UNIQUE_ID), plain)
        struck = self.python("ncclGetUniqueId:error=ncclRemoteError", UNIQUE_ID)
        self.assertIn("NCCL Error 6: remote process exited", struck)
        self.assertEqual(len(self.firings()), 1)


class Posix(InterposedTest):
    """libfiu's points, struck at the n-th call and on record."""

    labels = "selftest fault framework"
    timeout_s = 120
    SCRIPT = ("import os, sys\n"
              "pipe = os.pipe()[1]\n"
              "def fails():\n"
              "    try: os.write(pipe, b'x')\n"
              "    except OSError as error: return error.errno\n"
              "    return 0\n"
              "print([fails() for _ in range(4)])")  # fmt: skip

    def setUp(self):
        super().setUp()
        if not FIU.exists():
            self.skipTest(
                f"libfiu's POSIX preload is not installed: {FIU} (Debian package libfiu0)"
            )

    def python(self, rules, script, **more):
        return self.struck(rules, sys.executable, "-S", "-c", script, preload=[FIU], **more)

    def test_the_nth_write_fails(self):
        done = self.python("posix/io/rw/write:error=ENOSPC,call=2", self.SCRIPT)
        self.assertEqual(done.out, "[0, 0, 28, 0]\n", str(done))
        self.assertEqual(self.firings(), [{
            "fault": "posix/io/rw/write:error=ENOSPC,call=2", "function": "posix/io/rw/write",
            "call": 2, "rank": None, "bytes": 0,
            "detail": "not called, it returns ENOSPC"}])  # fmt: skip

    def test_on_one_rank(self):
        rule = "posix/io/rw/write:error=EIO,rank=1,call=1,then-on"
        done = self.python(rule, self.SCRIPT + "\n" * 2 + "os._exit(0)", RANK="0")
        self.assertEqual(self.firings(), [])
        self.python(rule, self.SCRIPT, RANK="1")
        self.assertGreaterEqual(len(self.firings()), 3)
        self.assertEqual(done.code, 0)

    def test_torch_save_fails_at_its_write(self):
        script = ("import os, torch\n"
                  "os.environ['RANK'] = '0'\n"  # from here on
                  "torch.save({'w': torch.ones(100000)}, 'saved')")  # fmt: skip
        done = self.struck("posix/io/rw/write:error=ENOSPC,rank=0", sys.executable, "-c", script,
                           preload=[FIU], timeout=60)  # fmt: skip
        self.assertEqual(done.code, 1, str(done))
        self.assertIn("RuntimeError", done.err)
        self.assertEqual(len(self.firings()), 1)

    def test_a_point_that_there_is_not_is_refused(self):
        done = self.python("posix/io/rw/writ:error=EIO", self.SCRIPT)
        self.assert_exit(done, 2)
        self.assertIn("has no point of this name", done.err)
        done = self.struck("posix/io/rw/write:error=EIO", sys.executable, "-S", "-c", self.SCRIPT)
        self.assert_exit(done, 2)
        self.assertIn("libfiu's POSIX preload is not loaded", done.err)


class Gpus(InterposedTest):
    """The real libraries, doing their work."""

    labels = "selftest fault multi-gpu framework"
    timeout_s = 240
    ALONE = """
import os, torch, torch.distributed as dist
store = "file://" + os.path.abspath("store")
dist.init_process_group("nccl", init_method=store, rank=0, world_size=1)
value = torch.full((4,), 3.0, device="cuda")
try:
    dist.all_reduce(value)
    torch.cuda.synchronize()
    print("value", value.tolist(), flush=True)
except Exception as error:
    print(type(error).__name__, error, flush=True)
os._exit(0)
"""
    TWO = """
import os, torch, torch.distributed as dist
rank = int(os.environ["RANK"])
torch.cuda.set_device(rank % torch.cuda.device_count())
store = "file://" + os.path.abspath("store")
dist.init_process_group("nccl", init_method=store, rank=rank, world_size=2)
value = torch.ones(4, device="cuda")
for word in ("first", "second"):
    dist.all_reduce(value)
    torch.cuda.synchronize()
    print(word, flush=True)
os._exit(0)
"""

    def setUp(self):
        super().setUp()
        import torch  # takes seconds, which the other tests need not wait

        self.torch = torch
        if not torch.cuda.is_available():
            self.skipTest("no GPU")

    def alone(self, rules, script=ALONE):
        (self.dir / "store").unlink(missing_ok=True)
        done = self.struck(rules, sys.executable, "-c", script, timeout=100)
        self.assert_exit(done, 0)
        return done.out.strip()

    def test_an_error_surfaces_as_an_exception(self):
        self.assertEqual(self.alone(None), "value [3.0, 3.0, 3.0, 3.0]")
        said = self.alone("ncclAllReduce:error=ncclRemoteError")
        self.assertIn("DistBackendError", said)
        self.assertIn("ncclRemoteError", said)

    def test_a_bit_of_device_memory_is_flipped(self):
        self.assertEqual(self.alone("ncclAllReduce:flip=31"), "value [-3.0, 3.0, 3.0, 3.0]")
        self.assertEqual(len(self.firings()), 1, self.firings())

    def test_memory_that_is_not_there(self):
        script = ("import torch\ntry: torch.ones(1 << 20, device='cuda'); print('made')\n"
                  "except torch.OutOfMemoryError: print('out of memory')")  # fmt: skip
        self.assertEqual(self.alone("cudaMalloc:error=2,then-on", script), "out of memory")
        # The allocator tries again.
        self.assertEqual(self.alone("cudaMalloc:error=2", script), "made")

    def test_a_dropped_collective_leaves_the_peer_waiting(self):
        if self.torch.cuda.device_count() < 2 and self.torch.cuda.nccl.version() < (2, 30):
            self.skipTest("one GPU, and this NCCL has no NCCL_MULTI_RANK_GPU_ENABLE")
        mark = f"gpus-{os.getpid()}"
        self.addCleanup(self.end, mark)
        variables = {
            **self.variables("ncclAllReduce:drop,rank=1,call=1"),
            "NCCL_MULTI_RANK_GPU_ENABLE": "1",
        }
        ranks = [self.start([sys.executable, "-c", self.TWO], mark, RANK=str(rank), **variables)
                 for rank in (0, 1)]  # fmt: skip
        out, err = ranks[1].communicate(timeout=100)
        self.assertEqual(out, "first\nsecond\n", err)
        time.sleep(5)
        self.assertIsNone(ranks[0].poll(), "rank 0 did not wait for its peer")
        self.end(mark)
        out, err = ranks[0].communicate()
        self.assertEqual((ranks[0].returncode, out), (-9, "first\n"), err)
