"""The ways in which people take steps, each of them sound: accumulation, clipping, a loss scaler,
parameters that are frozen for some steps, averages, schedules, optimizers, precisions, wrappers.

ci/sound_ways draws from OPTIONS; why_not says what does not go together.
"""

from optimizers import schedule_of
from ways_job import Averages, build_of, job_of, scaler_of

CANNOT = {
    "plain": "it has one way of loading",
    "identity": "what is run depends on the option `wrapper`",
    "host_bound": "what is run depends on the option `wrapper`",
    "save": "it only takes steps",
    "keys": "it does not say which keys were missing",
}
SHOWS = {"collectives": ["*reduce*"]}  # with DDP nothing is sharded
RUNS = (
    "plain: 2 llama-tied-small",
    "two_optimizers: 2 llama-tied-small optimizer=muon clip=norm",
    "averages nightly: 2 llama-tied-small batches=accumulate averages=with",
    "scaler nightly: 2 llama-tied-small wrapper=ddp scaler=skips averages=apart",
    "fused_scaler: 2 llama-tied-small optimizer=adamw_fused scaler=skips",
    "sharded_scaler nightly: 2 llama-tied-small wrapper=fsdp1 scaler=skips",
)
OPTIONS = {
    "wrapper": ["fsdp2", "fsdp1", "fsdp1_flat", "ddp", "accelerate", "accelerate_ddp"],
    "optimizer": ["adamw", "adamw_foreach", "adamw_fused", "amsgrad", "adam", "nadam", "radam",
                  "adamax", "adadelta", "rmsprop", "sgd", "sgd_plain", "adagrad", "adafactor",
                  "lion", "zero", "two", "muon", "rate_of_each"],
    "batches": ["plain", "accumulate", "no_sync", "weighted"],
    "schedule": ["no", "exponential", "warmup", "cosine"],
    "frozen": ["no", "first", "unfreeze", "refreeze"],
    "scaler": ["no", "yes", "skips"],
    "clip": ["no", "norm", "by_hand", "value", "groups", "infinity"],
    "precision": ["fp32", "autocast", "bf16", "all_bf16", "masters"],
    "dropout": ["no", "yes"],
    "averages": ["no", "with", "apart"],  # observed with the model, or by themselves
    "average_of": ["ema", "best", "reference", "warm"],
}  # fmt: skip


def why_not(options, mesh):
    """Why these do not go together; "" if they do. mesh: {axis: ranks}."""
    wrapper, optimizer = options["wrapper"], options["optimizer"]
    precision, scaler = options["precision"], options["scaler"]
    is_fsdp1 = wrapper.startswith("fsdp1")
    is_accelerate = wrapper.startswith("accelerate")
    if "tp" in mesh and wrapper != "fsdp2":
        return "only FSDP2 is put on tensor parallelism here"
    if "tp" in mesh and options["clip"] not in ("no", "value"):
        return "torch takes no norm over two meshes"
    if is_accelerate and len(mesh) > 1:
        return "Accelerate takes all ranks as one axis"
    if precision == "bf16" and wrapper != "fsdp2" and not is_fsdp1:
        return "a policy of mixed precision is FSDP's"
    if precision == "masters" and (wrapper != "ddp" or scaler != "no"):
        return "copies in F32 are made by hand, with DDP"
    if optimizer == "zero" and (wrapper != "ddp" or precision == "masters" or scaler != "no"):
        return "its ranks each step some of whole parameters"
    if is_fsdp1 and optimizer == "adamw_fused" and scaler != "no":
        return "torch's sharded loss scaler and its fused optimizer do not go together on a CPU"
    if options["clip"] == "groups" and is_fsdp1:
        return "torch's own norm is that of a rank's part there"
    if optimizer == "adafactor" and "ddp" not in wrapper:
        return "torch's takes whole parameters alone"
    if optimizer == "muon" and is_fsdp1:
        return "it steps matrices, and FSDP1's parameters are flat"
    if optimizer == "muon" and "tp" in mesh:
        return "its products of matrices have no rule for two axes"
    if optimizer in ("adafactor", "muon") and precision == "masters":
        return "what they keep follows the shape"
    if is_accelerate and (scaler != "no" or options["batches"] == "weighted"):
        return "Accelerate scales the loss itself"
    if options["frozen"] in ("unfreeze", "refreeze") and wrapper != "fsdp2":
        return "DDP and FSDP1 ask for what is trained when they wrap"
    return ""


def plain(case):
    """As a twin it has to know what is dropped, and which dtypes are meant."""
    model = build_of(case)("cpu")
    model.load_state_dict(case.state_dict(), strict=False)
    return model


def run(case, observe):
    if not case.steps:
        observe("built", model=build_of(case)("meta"))
        return observe("ready", model=job_of(case).model)
    job, options = job_of(case), case.options
    model, trained = job.model, [p for p in job.model.parameters() if p.requires_grad]
    optimizers = job.optimizers
    schedules = [schedule_of(options["schedule"], each) for each in optimizers]
    scaler = scaler_of(case)
    averages = Averages(options["average_of"], model)
    shown = {"model": model, "optimizer": optimizers[0] if len(optimizers) == 1 else optimizers}
    observe("ready", **shown, averages=averages.of)
    for step in range(1, case.steps + 1):
        if options["frozen"] in ("unfreeze", "refreeze"):  # the last one, or all but that
            for p in trained[-1:] if options["frozen"] == "unfreeze" else trained[:-1]:
                p.requires_grad_(step != 2)
        job.backward(step, scaler.scale)
        if options["scaler"] == "skips" and step == 2 and trained[0].grad is not None:
            trained[0].grad.fill_(float("inf"))  # the scaler leaves this step out
        if options["clip"] != "no":  # else the scaler does it in its step, or a fused optimizer
            for optimizer in optimizers:
                scaler.unscale_(optimizer)
        job.copy_gradients()
        job.clip()
        for optimizer in optimizers:
            scaler.step(optimizer)
        scaler.update()
        job.copy_masters()
        for schedule in schedules:
            schedule()
        for optimizer in optimizers:
            optimizer.zero_grad()
        model.zero_grad()
        averages.follow(model, step)
        more = {"averages": averages.of} if options["averages"] == "with" else {}
        observe("stepped", **shown, step=step, **more)
        if options["averages"] == "apart":
            observe("ema", averages=averages.of, step=step)
    return None
