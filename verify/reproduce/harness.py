"""What reproducer scripts are made of: the job on its ranks, and one check for each kind of finding.

reproducer.py copies from here, as text, what one script needs, so nothing here may need anything but
torch and what the subject needs itself. The constants in capitals are each script's own; those below
only stand for them.
"""

import argparse
import contextlib
import ctypes
import datetime
import glob
import importlib
import importlib.util
import json
import multiprocessing
import multiprocessing.connection
import os
import re
import signal
import sys
import tempfile
import threading
import time
import traceback

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

Case = None  # these three are copied from the package
anonymous_bytes = None
committed_bytes = None
check = expected = remember = None  # three of the functions below, by the names that the script calls them by
PHASE, STAGE = "values", "ready"  # where the finding shows; a stage of None: when run() is over
REFERENCE = None  # phase and stage of which rank 0 keeps the tensors, to compare with
TENSORS = []
PHASES = {}  # what the job is asked for in each phase, in order
SUBJECT = ""
MODULES = {}  # file name: text
PRELOAD = []
CONFIG = {}
LACKS, EXTRA, OTHER_DTYPE, FILES = [], {}, {}, 1  # the checkpoint's difference from the model
NEEDS_CHECKPOINT = False
TIMEOUT, DEADLINE = 0, 0
OWN = False  # whether each rank is compared with what it held itself
KEYS = {}  # tensor: its key in the checkpoint, where that is another
FORMULA = {}  # tensor: values
ULP = 0
FIELD = ""  # of describe()
SHARED, MUST_SHARE = {}, True
KEY_REPORT = ""  # "missing" or "unexpected"
LIMITS = {}  # rank: bytes that it may need while run() works
FAULTS = []  # (phase, rank, stage, step or None, what happens to the rank then)
SAVED = ""  # "absent", "extra", "twice" or "differs"

# ---- checks: check(job, model) calls job.fail(tensor, what) for whatever does not hold -----------


def check_values(job, model):
    """This rank holds the elements that it should, bit for bit."""
    found = tensors_of(model)
    for name in TENSORS:
        if name not in found:
            job.fail(name, "is not in the model")
            continue
        tensor, want = found[name], expected(job, name)
        if own(tensor).is_meta:
            job.fail(name, "is on the meta device")
        elif tensor.dtype != want.dtype or tensor.shape != want.shape:
            job.fail(
                name,
                f"is {tensor.dtype} {list(tensor.shape)}, expected {want.dtype} {list(want.shape)}",
            )
        else:
            compare(job, name, own(tensor), part_like(want, tensor), indices_like(tensor))


def compare(job, name, mine, theirs, indices):
    """Names the first element that differs, by its index in the whole tensor."""
    if mine.shape != theirs.shape:
        job.fail(name, f"has a shard of {list(mine.shape)}, expected {list(theirs.shape)}")
        return
    wrong = differing(mine, theirs)
    if len(wrong):
        here = int(wrong[0])
        job.fail(
            name,
            f"element {int(indices.reshape(-1)[here])} is {element(mine, here)}, expected "
            f"{element(theirs, here)}; {len(wrong)} of the {mine.numel()} elements here differ",
        )


def differing(mine, theirs):
    """Places of the elements whose bits differ."""
    rows = [bits.reshape(-1).view(torch.uint8).view(bits.numel(), -1) if bits.numel() else bits
            for bits in (mine.contiguous(), theirs.contiguous())]  # fmt: skip
    return (rows[0] != rows[1]).any(1).nonzero().flatten() if mine.numel() else []


def differing_by_ulp(mine, theirs):
    """Places of the elements that are further apart than ULP units in the last place."""
    first, second = (bits.contiguous().view(torch.int32).long() for bits in (mine, theirs))
    return ((first - second).abs() > ULP).flatten().nonzero().flatten()


def element(tensor, place):
    """An element as text: value and bits."""
    one = tensor.contiguous().reshape(-1)[place : place + 1]
    bits = bytes(reversed(one.view(torch.uint8).tolist())).hex()
    return f"{one.item()} (0x{bits})"


def expected_from_checkpoint(job, name):
    key = KEYS.get(name, name)
    return read_checkpoint(job.case.checkpoint, key)[key]


def expected_from_formula(job, name):
    return torch.tensor(FORMULA[name], dtype=torch.float32)


def expected_from_reference(job, name):
    rank = job.case.rank if OWN else 0
    return torch.load(f"{job.directory}/reference.{rank}.pt")[name]


def remember_values(job, model):
    """Every rank keeps the whole tensors; gathering them is for all ranks that hold a part."""
    found = {name: tensor for name, tensor in tensors_of(model).items() if name in TENSORS}
    for name, tensor in found.items():
        full = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        found[name] = full.detach().clone()
    torch.save(found, f"{job.directory}/reference.{job.case.rank}.pt")


def check_live(job, model):
    """The optimizer holds each of the model's own parameters once, and nothing that is not."""
    own_parameters = tensors_of(job.model)
    held = [id(one) for group in job.optimizer.param_groups for one in group["params"]]
    for name in TENSORS:
        count = held.count(id(own_parameters.get(name)))
        if count != 1:
            job.fail(name, f"the optimizer holds this parameter of the model {count} times")
    strangers = len(set(held) - {id(one) for one in own_parameters.values()})
    if strangers and not TENSORS:
        job.fail("", f"the optimizer holds {strangers} tensors that are not the model's")


def options_of(job):
    """The options of every parameter's group, as text."""
    name_of = {id(tensor): name for name, tensor in reversed(tensors_of(job.model).items())}
    return {
        name_of.get(id(parameter), "?"): {k: repr(v) for k, v in group.items() if k != "params"}
        for group in job.optimizer.param_groups
        for parameter in group["params"]
    }


def remember_options(job, model):
    with open(f"{job.directory}/options.json", "w") as file:
        json.dump(options_of(job), file)


def check_options(job, model):
    """The options of the optimizer's groups are what they were when they were saved."""
    with open(f"{job.directory}/options.json") as file:
        saved = json.load(file)
    for name, options in options_of(job).items():
        was = saved.get(name, {})
        for key in sorted(options.keys() | was.keys()):
            if name in TENSORS and options.get(key) != was.get(key):
                job.fail(name, f"its {key} is {options.get(key)}, it was {was.get(key)} when saved")


def remember_rng(job, model):
    job.rng = torch.get_rng_state()


def check_rng(job, model):
    """The random number generator is in the state in which it was saved."""
    if not torch.equal(torch.get_rng_state(), job.rng):
        job.fail("", "the random number generator is in another state than when it was saved")


def remember_all(job, model):
    job.before = {name: own(tensor).clone() for name, tensor in tensors_of(model).items()}


def check_steps_act(job, model):
    """A step changes some parameter."""
    if all(torch.equal(own(tensor), job.before[name]) for name, tensor in tensors_of(model).items()):
        job.fail("", f"nothing is another than at `{REFERENCE[1]}`: the step changed no parameter")


def check_meta(job, model):
    for name, tensor in tensors_of(model).items():
        if name in TENSORS and own(tensor).is_meta:
            job.fail(name, "is still on the meta device")


def check_defined(job, model):
    """Every tensor is there, and run() does not say that its values mean nothing yet."""
    found = tensors_of(model)
    for name in TENSORS:
        said = job.content(name) if callable(job.content) else job.content
        if name not in found:
            job.fail(name, "is not in the model")
        elif own(found[name]).is_meta:
            job.fail(name, "is still on the meta device")
        elif said in ("none", "undefined"):
            job.fail(name, f'run() calls its content "{said}": nothing has given it a value')


def check_names(job, model):
    """The model has the tensors that its own class makes, and no other."""
    found, declared = set(tensors_of(model)), set(tensors_of(job.case.build("meta")))
    for what, names in (("lacks", declared - found), ("has besides", found - declared)):
        if names:
            job.fail("", f"the model {what} {len(names)} tensors: {', '.join(sorted(names)[:5])}")


def check_finite(job, model):
    """No NaN or Inf that the checkpoint does not have in the same place."""
    found = tensors_of(model)
    for name in TENSORS:
        mine = own(found[name])
        source = read_checkpoint(job.case.checkpoint, KEYS.get(name, name))
        allowed = torch.zeros_like(mine, dtype=torch.bool)
        for tensor in source.values():
            allowed = ~part_like(tensor, found[name]).isfinite()
        for what, wrong in (("NaN", mine.isnan() & ~allowed), ("Inf", mine.isinf() & ~allowed)):
            if wrong.any():
                first = int(indices_like(found[name])[wrong][0])
                job.fail(name, f"{int(wrong.sum())} elements are {what}, the first is {first}")


def remember_fields(job, model):
    job.built = describe(model)


def check_fields(job, model):
    """What a tensor is, is what it was."""
    found = describe(model)
    was = job.built if REFERENCE else describe(job.case.build("meta"))
    for name in TENSORS:
        if found[name][FIELD] != was[name][FIELD]:
            job.fail(name, f"{FIELD} is {found[name][FIELD]}, expected {was[name][FIELD]}")


def check_alike(job, model):
    """What a tensor is, is alike on all ranks."""
    mine = {name: what[FIELD] for name, what in describe(model).items() if name in TENSORS}
    everyone = [None] * job.case.world_size
    dist.all_gather_object(everyone, mine)
    for name in TENSORS:
        if mine.get(name) != everyone[0].get(name):
            job.fail(name, f"{FIELD} is {mine.get(name)}, on rank 0 {everyone[0].get(name)}")


def check_layout(job, model):
    """The shards are those of torch.chunk, and together they are the whole tensor."""
    found = tensors_of(model)
    for name in TENSORS:
        tensor, indices = found[name], indices_like(found[name])
        if own(tensor).shape != indices.shape:
            what = f"has a shard of {list(own(tensor).shape)}; its placements give "
            job.fail(name, what + str(list(indices.shape)))
        if isinstance(tensor, DTensor) and any(one.is_partial() for one in tensor.placements):
            job.fail(name, "awaits a reduction over ranks")
        held = torch.zeros(tensor.numel())
        held[indices.reshape(-1)[: own(tensor).numel()]] = 1
        dist.all_reduce(held)
        if (held == 0).any():
            job.fail(name, f"no rank has element {int((held == 0).nonzero()[0])}")


def check_sharing(job, model):
    """Tied tensors share memory, others do not."""
    found = tensors_of(model)
    for name, other in SHARED.items():
        places = [own(found[one]).untyped_storage().data_ptr() for one in (name, other)]
        if (places[0] == places[1]) != MUST_SHARE:
            job.fail(name, f"{'does not share' if MUST_SHARE else 'shares'} memory with {other}")


def check_key_report(job, model):
    """The keys that the framework reports as missing or unexpected are those that are."""
    declared, keys = job.case.build("meta").state_dict(), read_checkpoint(job.case.checkpoint)
    for name in TENSORS:
        missing, unexpected = name not in keys, name not in declared
        truth = missing if KEY_REPORT == "missing" else unexpected
        said = name in job.keys[KEY_REPORT]
        if truth != said:
            job.fail(name, f"is {'' if truth else 'not '}{KEY_REPORT}, and the report says otherwise")


def check_saved(job, model):
    """What was saved is what was loaded; rank 0 reads it."""
    if job.case.rank != 0:
        return
    saved = read_checkpoint(job.case.save_to)
    for name in TENSORS:
        other = SHARED.get(name)
        if SAVED == "absent" and name not in saved:
            job.fail(name, "is not in the saved checkpoint")
        elif SAVED == "extra" and name in saved:
            job.fail(name, "is in the saved checkpoint, and not in the model's state dict")
        elif SAVED == "twice" and name in saved and other in saved:
            job.fail(name, f"is saved twice, also as {other}")
        elif SAVED == "differs":
            want = expected(job, name)
            indices = torch.arange(want.numel()).view(want.shape)
            if saved[name].dtype != want.dtype:
                job.fail(name, f"is saved as {saved[name].dtype}, expected {want.dtype}")
            else:
                compare(job, name, saved[name], want, indices)


def check_nothing(job, model):
    """How the ranks end is what is looked at."""


# ---- what a model holds --------------------------------------------------------------------------


def tensors_of(model):
    """Parameters and buffers under all their names, without the parts that wrappers add."""
    if isinstance(model, dict):  # a state dict, or what state_of gives
        return {name: value for name, value in model.items() if isinstance(value, torch.Tensor)}
    if isinstance(model, DistributedDataParallel):
        model = model.module
    found = [
        *model.named_parameters(remove_duplicate=False),
        *model.named_buffers(remove_duplicate=False),
    ]
    wrappers = r"(_fsdp_wrapped_module|_checkpoint_wrapped_module|_orig_mod)\."
    return {re.sub(wrappers, "", name): tensor for name, tensor in found}


def state_of(model, optimizer):
    """The tensors of an optimizer's state, by the parameter's name and the key."""
    name_of = {id(tensor): name for name, tensor in reversed(tensors_of(model).items())}
    return {
        f"{name_of.get(id(parameter), '?')}.{key}": value
        for parameter, state in optimizer.state.items()
        for key, value in state.items()
    }


def describe(model):
    """What each tensor is, apart from its values."""
    if isinstance(model, DistributedDataParallel):
        model = model.module
    non_persistent = {
        f"{prefix}.{name}".strip(".")
        for prefix, module in model.named_modules(remove_duplicate=False)
        for name in module._non_persistent_buffers_set
    }
    return {
        name: {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "kind": "parameter" if isinstance(tensor, torch.nn.Parameter) else "buffer",
            "persistent": name not in non_persistent,
            "requires_grad": tensor.requires_grad,
            "attributes": {
                key: str(value)
                for key, value in vars(tensor).items()
                if not key.startswith("_") and isinstance(value, str | int | float | bool)
            },
            "placements": str(getattr(tensor, "placements", "not distributed")),
            "object": f"the object {id(tensor):#x}",
        }
        for name, tensor in tensors_of(model).items()
    }


def own(tensor):
    """What this rank holds of it."""
    return (tensor.to_local() if isinstance(tensor, DTensor) else tensor).detach()


def part_like(full, tensor):
    """The part of `full` that a rank with this part of `tensor` should hold. Sends nothing."""
    if not isinstance(tensor, DTensor):
        return full
    mesh, placements = tensor.device_mesh, tensor.placements
    return distribute_tensor(full, mesh, placements, src_data_rank=None).to_local()


def indices_like(tensor):
    """The place in the whole tensor of each element that this rank holds."""
    return part_like(torch.arange(tensor.numel()).view(tensor.shape), tensor)


def whole(model):
    """FSDP1 shows its original parameters only within this."""
    modules = [] if model is None else model.modules()
    if any(isinstance(module, FullyShardedDataParallel) for module in modules):
        return FullyShardedDataParallel.summon_full_params(model, writeback=False)
    return contextlib.nullcontext()


def read_checkpoint(directory, key=None):
    """Its tensors by key, or the one asked for, if it is there."""
    from safetensors import safe_open

    tensors = {}
    for path in sorted(glob.glob(f"{directory}/*.safetensors")):
        with safe_open(path, "pt") as file:
            wanted = file.keys() if key is None else {key} & set(file.keys())
            tensors.update({name: file.get_tensor(name) for name in wanted})
    return tensors


class MemoryWatch(threading.Thread):
    """The most host memory of this process since it began, mapped files not counted."""

    def __init__(self):
        super().__init__(daemon=True)
        ctypes.CDLL(None).mallopt(-3, 64 << 10)  # M_MMAP_THRESHOLD: what is freed is given back
        self.idle = self.peak = anonymous_bytes()
        self.over = threading.Event()
        self.start()

    def run(self):
        while not self.over.wait(0.002):
            self.peak = max(self.peak, anonymous_bytes())

    def used(self):
        self.over.set()
        self.join()
        return self.peak - self.idle


def check_peak(job, _):
    """This rank needed no more than its shards, one bucket and some slack."""
    used, limit = job.memory.used(), LIMITS.get(job.case.rank)
    if limit is not None and used > limit:
        job.fail("", f"its host memory rose by {used} bytes; its own shards, one bucket and the slack "
                     f"are {limit}")  # fmt: skip


def check_pages(job, model):
    """What has no value yet is backed by no pages: at most those that it shares with neighbours."""
    for name in TENSORS:
        tensor = own(tensors_of(model)[name])
        if tensor.is_meta:
            continue
        committed = committed_bytes(tensor.data_ptr(), tensor.nbytes)
        if committed > 8192:
            job.fail(name, f"{committed} of {tensor.nbytes} bytes are committed, and it has no value yet")


# ---- the job on its ranks ------------------------------------------------------------------------


class Job:
    """One rank of one phase. It is the `observe` that run() calls at each stage."""

    def __init__(self, case, directory):
        self.case, self.directory = case, directory
        self.content, self.keys = None, {}

    def say(self, **record):
        """To the parent process, at once: a rank may be killed at any time."""
        with open(f"{self.directory}/{self.case.phase}.{self.case.rank}.said", "a") as file:
            file.write(json.dumps(record) + "\n")

    def fail(self, tensor, what):
        self.say(fail=what, tensor=tensor)

    def __call__(
        self, stage, model=None, optimizer=None, state_dict=None, content=None, step=0,
        missing=None, unexpected=None,
    ):  # fmt: skip
        self.say(stage=stage)
        if missing is not None or unexpected is not None:
            self.keys = {"missing": missing or [], "unexpected": unexpected or []}
        self.model, self.optimizer = model, optimizer
        name = f"{stage}@{step}" if step else stage
        with whole(model):
            self.look_at(name, model, content)
            if optimizer is not None:
                self.look_at(f"{name}.optimizer", state_of(model, optimizer))
            if state_dict is not None:
                self.look_at(f"{name}.state_dict", state_dict)
        if FAULTS:
            strike(self, stage, step)

    def look_at(self, stage, model, content=None):
        here = (self.case.phase, stage)
        if here == REFERENCE:
            remember(self, model)
        if here == (PHASE, STAGE):
            self.content = content
            if REFERENCE:
                dist.barrier()
            check(self, model)
            self.say(checked=True)


def strike(job, stage, step):
    """What happens to this rank now that it has reached a stage, if anything does."""
    for fault in list(FAULTS):
        phase, rank, when, at_step, act = fault
        if (phase, rank, when) == (job.case.phase, job.case.rank, stage) and at_step in (None, step):
            FAULTS.remove(fault)
            job.say(struck=act)
            if act == "leave":
                os._exit(0)
            elif act == "slow":
                time.sleep(0.3)
            else:
                os.kill(os.getpid(), signal.SIGKILL if act == "kill" else signal.SIGSTOP)


def end_stopped(ranks, since):
    """Ends ranks that have been stopped for 3 s, as whoever runs a job would."""
    for process in ranks:
        if process.exitcode is None:
            with open(f"/proc/{process.pid}/stat") as file:
                is_stopped = file.read().rpartition(")")[2].split()[0] == "T"
            begin = since.setdefault(process.pid, time.monotonic()) if is_stopped else time.monotonic()
            if time.monotonic() - begin > 3:
                process.kill()


def case_of(phase, rank, directory, checkpoint):
    """What run() is asked for on this rank."""
    asked = {"rank": rank, "checkpoint": checkpoint, **PHASES[phase]}
    if "save_to" in asked:
        asked["save_to"] = f"{directory}/{asked['save_to']}"
    return Case(**asked)


def run_rank(phase, rank, directory, checkpoint):
    """One rank, in a process of its own."""
    with open(f"{directory}/{phase}.{rank}.log", "w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    job = Job(case_of(phase, rank, directory, checkpoint), directory)
    world_size = PHASES[phase]["world_size"]
    os.environ.update(
        RANK=str(rank), WORLD_SIZE=str(world_size), LOCAL_RANK=str(rank),
        LOCAL_WORLD_SIZE=str(world_size), GLOO_SOCKET_IFNAME="lo",
    )  # fmt: skip
    try:
        subject = load_subject(f"{directory}/modules/{SUBJECT}")
        store = dist.FileStore(f"{directory}/{phase}.rendezvous", world_size)
        timeout = datetime.timedelta(seconds=TIMEOUT)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size, timeout=timeout)
        dist.barrier()
        if PHASE != "memory":
            show_unwritten_memory()
        if LIMITS:
            job.memory = MemoryWatch()
        torch.manual_seed(job.case.seed)
        subject.run(job.case, job)
        dist.barrier()
        if STAGE is None:
            check(job, None)
            job.say(checked=True)
        dist.destroy_process_group()
        job.say(ended=True)
    except BaseException as error:  # noqa: BLE001 (SystemExit ends a rank too)
        frame = traceback.extract_tb(error.__traceback__)[-1]
        text = " ".join(str(error).split())[:500]
        where = f"{os.path.basename(frame.filename)}:{frame.lineno}"
        job.say(raised=f"{type(error).__name__}: {text} ({where})")
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


def load_subject(path):
    spec = importlib.util.spec_from_file_location("subject", path)
    module = sys.modules["subject"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def show_unwritten_memory():
    """torch.empty gives NaN, and in integers the largest number, instead of what lies there."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True


def run_phase(phase, directory, checkpoint, deadline):
    """The exit code of every rank; None for one that had to be killed."""
    fork = multiprocessing.get_context("fork")  # ranks begin with torch imported, and no more
    ranks = [
        fork.Process(target=run_rank, args=(phase, rank, directory, checkpoint))
        for rank in range(PHASES[phase]["world_size"])
    ]
    for process in ranks:
        process.start()
    end, grace = time.monotonic() + deadline, 5
    if FAULTS:
        grace, stopped = deadline, {}
    while alive := [process for process in ranks if process.exitcode is None]:
        left = end - time.monotonic()
        if left <= 0:
            break
        if FAULTS:
            left = min(left, 0.1)
            end_stopped(ranks, stopped)
        multiprocessing.connection.wait([process.sentinel for process in alive], left)
        if any(process.exitcode for process in ranks):  # what waits for it gets a little longer
            end = min(end, time.monotonic() + grace)
    codes = [process.exitcode for process in ranks]
    for process in ranks:
        process.kill()
        process.join()
    return codes


def read_said(phase, rank, directory):
    try:
        with open(f"{directory}/{phase}.{rank}.said") as file:
            return [json.loads(line) for line in file]
    except FileNotFoundError:
        return []


def last_words(phase, rank, directory):
    with open(f"{directory}/{phase}.{rank}.log", errors="replace") as file:
        lines = file.read().splitlines()[-6:]
    return "".join(f"\n    {line}" for line in lines)


def how_it_ended(code, said):
    """What is wrong with the end of a rank, or nothing."""
    stages = [record["stage"] for record in said if "stage" in record]
    after = f"after `{stages[-1]}`" if stages else "before its first stage"
    raised = [record["raised"] for record in said if "raised" in record]
    if raised:
        return f"raised {after}: {raised[0]}"
    if code is None:
        return f"was still running {after} when its time was over"
    if code < 0:
        return f"was ended by {signal.Signals(-code).name} {after}"
    if code > 0 or not any("ended" in record for record in said):
        return f"ended with exit code {code} {after}, before run() was over"
    return ""


def look_at_values(phase, code, said):
    """(what fails, what else went wrong) on one rank."""
    fails = [(record["tensor"], record["fail"]) for record in said if "fail" in record]
    trouble = how_it_ended(code, said)
    if not trouble and phase == PHASE and not any("checked" in record for record in said):
        trouble = f"run() was over without `{STAGE}`: nothing was checked"
    return fails, trouble


def look_at_ends(phase, code, said):
    """(what fails, what else went wrong) on one rank: here, how it ended."""
    how = how_it_ended(code, said)
    return ([("", how)], "") if how and phase == PHASE else ([], how)


def look_at_struck(phase, code, said):
    """(what fails, what else went wrong) on one rank: how it ended, if nothing was to end it."""
    struck = [record["struck"] for record in said if "struck" in record]
    if struck and struck != ["slow"]:
        return [], ""
    how = how_it_ended(code, said)
    may_fail = any(act != "slow" for *_, act in FAULTS)
    if phase != PHASE or may_fail and how.startswith("raised"):
        return [], ""
    return [("", how)] if how else [], ""


def look_at_collectives(phase, code, said):
    """(what fails, what else went wrong) on one rank: torch compares the collectives by itself."""
    how = how_it_ended(code, said)
    mismatch = "mismatch between collectives" in how or "monitoredBarrier" in how
    return ([("", how)], "") if mismatch and phase == PHASE else ([], how)


look = look_at_values  # the script calls one of them so


def make_checkpoint(directory):
    """Random values under the keys, dtypes and number of files of the checkpoint in question."""
    from safetensors.torch import save_file

    os.makedirs(directory)
    if CONFIG:
        with open(f"{directory}/config.json", "w") as file:
            json.dump(CONFIG, file)
    torch.manual_seed(0)
    model = case_of(PHASE, 0, directory, directory).build("meta")
    wanted = {name: (t.dtype, t.shape) for name, t in model.state_dict().items()} | EXTRA
    tensors = {}
    for name, (dtype, shape) in sorted(wanted.items()):
        if name not in LACKS:
            tensors[name] = (torch.randn(shape) * 100).to(OTHER_DTYPE.get(name, dtype))
    names, index = list(tensors), {}
    for number in range(FILES):
        file_name = f"model-{number + 1:05d}-of-{FILES:05d}.safetensors"
        if FILES == 1:
            file_name = "model.safetensors"
        part = {name: tensors[name] for name in names[number::FILES]}
        save_file(part, f"{directory}/{file_name}", metadata={"format": "pt"})
        index.update(dict.fromkeys(part, file_name))
    with open(f"{directory}/model.safetensors.index.json", "w") as file:
        json.dump({"metadata": {}, "weight_map": index}, file)


def write_modules(directory):
    for name, text in MODULES.items():
        path = f"{directory}/modules/{name}"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    sys.path.insert(0, f"{directory}/modules")


def run_all(directory, checkpoint, deadline):
    """Every phase in turn; (lines of what fails, lines of what else went wrong)."""
    fails, troubles = [], []
    if checkpoint is None:
        checkpoint = f"{directory}/checkpoint"
        maker = multiprocessing.get_context("fork").Process(
            target=make_checkpoint, args=(checkpoint,)
        )
        maker.start()
        maker.join()
        if maker.exitcode:
            return [], ["the checkpoint could not be made (see above)"]
    for phase in PHASES:
        for rank, code in enumerate(run_phase(phase, directory, checkpoint, deadline)):
            who = f"rank {rank} of {PHASES[phase]['world_size']}"
            found, trouble = look(phase, code, read_said(phase, rank, directory))
            at = f"at `{STAGE}` of phase {phase}" if STAGE else f"in phase {phase}"
            fails += [f"{who}, {' '.join(filter(None, (name, at)))}: {what}" for name, what in found]
            if trouble:
                troubles.append(f"{who}, in phase {phase}: {trouble}{last_words(phase, rank, directory)}")
        if troubles:
            break
    return fails, troubles


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--checkpoint", metavar="DIR", required=NEEDS_CHECKPOINT)
    parser.add_argument("--deadline", metavar="SECONDS", type=float, default=DEADLINE)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for module in PRELOAD:
        importlib.import_module(module)
    with tempfile.TemporaryDirectory() as directory:
        write_modules(directory)
        fails, troubles = run_all(directory, arguments.checkpoint, arguments.deadline)
    for line in fails:
        print("FAIL:", line.replace(directory, "DIR"))
    for line in troubles:
        print("ERROR:", line.replace(directory, "DIR"))
    if not fails and not troubles:
        print("ok: it does not show here")
    return 1 if fails else 2 if troubles else 0
