"""Loads checkpoints with the libraries that wrote them, in a child that may die of it: _load.py

Reads lines {"directory": path, "what": what, "deadline_s": seconds} from stdin and writes a line
for each to stdout: {"end": "ok", "answer": digest, "line": what it is}, {"end": "error", "line":
why}, or {"end": "signal 11"}, {"end": "exit 3"}, {"end": "no end within 10 s"}. First it writes
{"ready": versions} or {"refusal": why}. `what` is {"kind": "dcp" | "torch" | "safetensors" |
"files", "path": where it lies in the directory, "files": [names there], "named_by": a small file
that says where it lies, or ""}. Ends when stdin does.

The functions down to `reason_of` stand in the scripts that reproduce a state, as they are.
"""

import ctypes
import gc
import hashlib
import json
import os
import select
import signal
import sys
import time
from pathlib import Path

PR_SET_PDEATHSIG = 1


def add(sha, value):
    """Everything that a caller can see of a loaded value: names, dtypes, shapes, bytes."""
    import torch

    if isinstance(value, torch.Tensor) and value.layout == torch.strided and not value.is_meta:
        flat = value.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
        sha.update(f"tensor {value.dtype} {tuple(value.shape)} ".encode())
        sha.update(ctypes.string_at(flat.data_ptr(), flat.numel() * flat.element_size()))
    elif isinstance(value, dict):
        sha.update(f"dict {len(value)} ".encode())
        for key in sorted(value, key=repr):
            sha.update(f"{key!r}: ".encode())
            add(sha, value[key])
    elif isinstance(value, (list, tuple)):
        sha.update(f"{type(value).__name__} {len(value)} ".encode())
        for item in value:
            add(sha, item)
    else:
        sha.update(f"{type(value).__name__} {value!r} ".encode())


def load_dcp(directory, files):
    """All tensors and values that .metadata names, by torch.distributed.checkpoint.load."""
    import torch
    import torch.distributed.checkpoint as dcp

    state = {}
    for name, kept in dcp.FileSystemReader(directory).read_metadata().state_dict_metadata.items():
        state[name] = 0
        if hasattr(kept, "size"):
            state[name] = torch.empty(kept.size, dtype=kept.properties.dtype)
            # What load leaves as it was is told from what was saved.
            state[name].reshape(-1).view(torch.uint8).fill_(0x5A)
    dcp.load(state, storage_reader=dcp.FileSystemReader(directory), no_dist=True)
    return state


def load_torch(directory, files):
    """Each file by torch.load."""
    import torch

    options = {"map_location": "cpu", "weights_only": True, "mmap": False}
    return {name: torch.load(f"{directory}/{name}", **options) for name in files}


def load_safetensors(directory, files):
    """Each file by safetensors; of files with an index, those that it names."""
    from safetensors.torch import load_file

    state = {}
    for name in [name for name in files if name.endswith(".index.json")]:
        index = json.loads(Path(directory, name).read_text())["weight_map"]
        names = sorted(set(index.values()))
        shards = {shard: load_file(f"{directory}/{shard}") for shard in names}
        state[name] = {key: shards[shard][key] for key, shard in index.items()}
    if not state:
        state = {name: load_file(f"{directory}/{name}") for name in files}
    return state


def load_files(directory, files):
    """Those of safetensors and those of torch.save."""
    ours = [name for name in files if name.endswith((".safetensors", ".index.json"))]
    others = [name for name in files if name not in ours]
    return {
        "safetensors": load_safetensors(directory, ours),
        "torch": load_torch(directory, others),
    }


LOADERS = {"dcp": load_dcp, "torch": load_torch, "safetensors": load_safetensors,
           "files": load_files}  # fmt: skip


def place_of(directory, what):
    """The directory that holds it, and the names there; both as a small file says, if one does."""
    if not what["named_by"]:
        return os.path.normpath(os.path.join(directory, what["path"])), what["files"]
    pointer = os.path.join(directory, what["named_by"])
    with open(pointer) as file:
        place = os.path.normpath(os.path.join(os.path.dirname(pointer), file.read().strip()))
    if os.path.isfile(place):
        return os.path.split(place)[0], [os.path.basename(place)]
    return place, what["files"]


def answer_of(state):
    sha = hashlib.sha256()
    add(sha, state)
    return sha.hexdigest()


def reason_of(error, directory):
    """One line. CheckpointException holds the error of each rank."""
    failures = getattr(error, "failures", None)
    if failures:
        error = next(iter(failures.values()))[0]
    lines = [line for line in str(error).splitlines() if line.strip()]
    line = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return line.replace(f"{directory}/", "").replace(str(directory), ".").strip()


def load(order):
    directory, what = order["directory"], order["what"]
    try:
        state = LOADERS[what["kind"]](*place_of(directory, what))
        return {"end": "ok", "answer": answer_of(state), "line": f"{len(state)} names"}
    except BaseException as error:  # CheckpointException is no Exception
        return {"end": "error", "line": reason_of(error, directory)}


class Child:
    """A fork that loads, one order after the other, for as long as it lives."""

    def __init__(self):
        orders, self._orders = os.pipe()
        self._answers, answers = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
                os.close(self._orders)
                self._work(orders, answers)
            finally:
                os._exit(5)
        os.close(orders)
        os.close(answers)

    @staticmethod
    def _work(orders, answers):
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nothing, number)
        for line in open(orders):
            os.write(answers, json.dumps(load(json.loads(line))).encode() + b"\n")
        os._exit(0)

    def ask(self, order):
        """\\returns the answer, or how it ended; it is gone then."""
        os.write(self._orders, json.dumps(order).encode() + b"\n")
        deadline = time.monotonic() + order["deadline_s"]
        text = b""
        while not text.endswith(b"\n"):
            if not select.select([self._answers], [], [], max(0, deadline - time.monotonic()))[0]:
                os.kill(self._pid, signal.SIGKILL)
                self.end()
                return {"end": f"no end within {order['deadline_s']:g} s"}, False
            piece = os.read(self._answers, 65536)
            if not piece:
                code = os.waitstatus_to_exitcode(self.end())
                return {"end": f"signal {-code}" if code < 0 else f"exit {code}"}, False
            text += piece
        return json.loads(text), True

    def end(self):
        os.close(self._orders)
        os.close(self._answers)
        return os.waitpid(self._pid, 0)[1]


def preload():
    """Whatever a load uses, so that a fork need not import it. \\returns the versions."""
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")
    import warnings

    warnings.simplefilter("ignore")
    import torch
    import torch.distributed.checkpoint  # noqa: F401

    torch.set_num_threads(1)
    versions = {"torch": torch.__version__}
    try:
        import safetensors.torch

        versions["safetensors"] = safetensors.__version__
    except ImportError:
        pass  # said by the load that needs it
    return versions


def serve():
    news = os.dup(1)
    os.dup2(2, 1)  # what an import prints is no news

    def say(record):
        os.write(news, json.dumps(record).encode() + b"\n")

    try:
        versions = preload()
    except Exception as error:  # whatever an import raises
        say({"refusal": reason_of(error, "")})
        return
    gc.collect()
    gc.freeze()
    say({"ready": versions})
    child = None
    for line in sys.stdin:
        child = child or Child()
        answer, is_there = child.ask(json.loads(line))
        child = child if is_there else None
        say(answer)
    if child:
        child.end()


if __name__ == "__main__":
    serve()
