"""Runs jobs on ranks, each sound and with its mistakes, before shardproof.check; or observes them.

A job is a function of its mistake (None: sound) that gives a model, and what is said of it to
check. Ranks are forks: no mesh and no group of one job reaches another.
"""

import contextlib
import dataclasses
import datetime
import json
import os
import tempfile
import traceback

import shardproof
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from shardproof._attached import _attach
from shardproof._holdings import _optimizer

DEADLINE_S = 30
ALONE = "SHARDPROOF_SELFTEST_CAME_TO"  # a folder: sound jobs leave there what they came to
_kept = []  # jobs of this rank, whose last step is looked at when the process group ends


def run(jobs, evidence=None, world_size=4):
    """jobs: {job: its mistakes}. Prints one line of JSON: {job: what check raised on every rank
    alike, or what it returned}. With a directory evidence they are observed instead, and it holds
    the evidence of each. Under shardproof.run nothing of ours is called: the evidence of the
    attached job goes there. A job may say of itself how many ranks it has: world_size. With ALONE
    in the environment, sound jobs are run, attached or not, and nothing of ours is called."""
    found = {}
    for job, mistakes in jobs.items():
        ranks = getattr(job, "world_size", world_size)
        for mistake in mistakes if ALONE not in os.environ else (None,):
            with tempfile.TemporaryDirectory() as folder:
                words = (job, mistake, evidence, ranks, folder)
                mp.start_processes(_rank, words, ranks, start_method="fork")
                with open(os.path.join(folder, "said")) as file:
                    found[f"{job.__name__} {mistake or 'sound'}"] = file.read()
    print(json.dumps(found))


def is_rank(rank):
    return dist.get_rank() == rank


def _step_without_gradients(optimizer):
    """It changes nothing, and is a moment at which an attached job is looked at. The last step of
    an optimizer of Megatron-LM or DeepSpeed is looked at when the process group ends."""
    for each in _optimizer.optimizers_in(optimizer):
        if _optimizer.is_cut_by_package(each):
            continue
        each.zero_grad()
        each.step()


@contextlib.contextmanager
def _losses():
    """What backward passes begin with, while this is open."""
    losses, backward = [], torch.autograd.backward

    def noted(tensors, *arguments, **named):
        first = tensors if isinstance(tensors, torch.Tensor) else tensors[0]
        if isinstance(first, torch.Tensor):  # and no edge of a graph, as of a stage of a pipeline
            own = getattr(first, "_local_tensor", first).detach()
            losses.append(own.double().sum().item())
        return backward(tensors, *arguments, **named)

    torch.autograd.backward = noted
    try:
        yield losses
    finally:
        torch.autograd.backward = backward


def _came_to(job):
    import attached_record  # which seeds random numbers

    with _losses() as losses:
        model, told = job(None)
    _kept.append((model, told))
    optimizers = _optimizer.optimizers_in(told.get("optimizer"))
    models = model if isinstance(model, list) else [model]
    came = attached_record.came_to(models, optimizers, losses)
    name = f"{job.__name__} {dist.get_rank()}.json"
    with open(os.path.join(os.environ[ALONE], name), "w") as file:
        json.dump(came, file)
    return "came to"


def _said(job, mistake, evidence):
    try:
        if ALONE in os.environ:
            return _came_to(job)
        model, told = job(mistake)
    except Exception:
        return traceback.format_exc()
    try:
        if _attach._job is not None:
            _kept.append((model, told))
            _step_without_gradients(told.get("optimizer"))
            return "attached"
        with torch.no_grad():
            if evidence:
                folder = os.path.join(evidence, f"{job.__name__} {mistake or 'sound'}")
                shardproof.observe("ready", model=model, to=folder, **told)
                return "observed"
            outcome = shardproof.check(model, deadline=DEADLINE_S, **told)
        return "sound" + "".join(f"; {line}" for line in outcome.inconclusive)
    except shardproof.Mismatch as mismatch:
        return str(mismatch)
    except (RuntimeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return traceback.format_exc()


def _rank(number, job, mistake, evidence, world_size, folder):
    torch.set_num_threads(1)
    if _attach._job is not None:  # each has a folder of its own
        folder_of_job = os.path.join(evidence, f"{job.__name__} {mistake or 'sound'}")
        options = dataclasses.replace(_attach._job.options, folder=folder_of_job)
        _attach._job.options = options
    store = dist.FileStore(os.path.join(folder, "store"), world_size)
    dist.init_process_group(
        "gloo", store=store, rank=number, world_size=world_size,
        timeout=datetime.timedelta(seconds=2 * DEADLINE_S),
    )  # fmt: skip
    texts = [None] * world_size
    dist.all_gather_object(texts, _said(job, mistake, evidence))
    if number == 0:
        text = texts[0] if len(set(texts)) == 1 else f"ranks differ: {texts}"
        with open(os.path.join(folder, "said"), "w") as file:
            file.write(text)
    dist.barrier()
    dist.destroy_process_group()
