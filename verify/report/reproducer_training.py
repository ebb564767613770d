"""What a program runs of a training job: as much as leads to what a finding is about. main_training.cc.j2
has the C++ that a training job needs besides its steps.
"""

PHASES = ("train", "again", "train_on_device", "train_resume")
BEFORE_STEPS = ("built", "loaded", "bound", "sharded", "materialized", "ready")


# By a pipeline of its own, without the planted bug: it refuses what is not as its manifest says.
RELOAD = ["++looked;",
          "if (const auto again = Restore(job, ReferenceStages(job.strategy), world); !again.ok()) {",
          '  seen.push_back(fmt::format("rank {}: {}", world.rank(), again.error().message));',
          "}"]  # fmt: skip


def moment_of(stage):
    """Name and step: ("stepped", 2) of "stepped@2.optimizer", ("saved", 0) of "saved"."""
    name, _, step = stage.removesuffix(".optimizer").partition("@")
    return name, int(step or 0)


def saved_steps(case):
    """As Case::SavedSteps has it."""
    steps, every = case["steps"], case["training"]["save_every"]
    if every == 0 or every >= steps:
        return [steps // 2] if steps > 1 else []
    return list(range(every, steps, every))


def step_name(step):
    """As src/checkpoint/steps.h has it."""
    return f"step-{step:08d}"


def kept_steps(case):
    """Directories of the saves that are to be left in the end."""
    return [step_name(step) for step in saved_steps(case)[-case["training"]["keep"] :]]


def job_lines(case):
    """What makes a Job one that trains."""
    training, lines = case["training"], [f"job.training.steps = {case['steps']};"]
    if training["clip_norm"] != 1:
        lines.append(f"job.training.clip_norm = {training['clip_norm']!r};")
    if training["moments"] == "BF16":
        lines.append("job.training.moments = at::kBFloat16;")
    if not training["masters"]:
        lines.append("job.training.masters = false;")
    if training["unfreeze_after"]:
        lines.append(f"job.training.unfreeze_after = {training['unfreeze_after']};")
    if training["offload"]:
        lines.append(f"job.training.offload = {training['offload']!r};")
        if not training["overlap"]:
            lines.append("job.training.overlap = false;")
    if training["keep"] != 2:
        lines.append(f"job.training.keep = {training['keep']};")
    if training["split_fused"]:
        lines.append("job.training.split_fused = true;")
    # Safetensors are the format of a Job that says nothing.
    return lines if training["format"] == "safetensors" else [*lines, "job.format = SaveFormat::kDcp;"]


def steps(saves, last, case):
    """Loads, takes steps up to `last`, and saves after some of them."""
    lines, taken, under_way = ["SP_ASSIGN(Model model, Load(job, stages, world));"], 0, ""

    def train(step):
        return [f'SP_TRY(Train(model, {step}, "stepped", job, stages, world));'] if step > taken else []

    def finish():
        return [f"SP_TRY({under_way}->Finish());"] if under_way else []

    for step in saves:
        lines += [*train(step), *finish()]
        taken = step
        if case["training"]["async"]:
            under_way = f"save{step}"
            lines.append(f"SP_ASSIGN(const auto {under_way}, StartSave(model, job, stages, world));")
        else:
            lines.append("SP_TRY(Save(model, job, stages, world));")
    return [*lines, *train(last), *finish()]


def resumed(last, restored):
    """Resumes, and takes steps up to `last`, if it is given."""
    lines = [f"SP_ASSIGN(Model resumed, Restore({restored}, stages, world));"]
    return lines + [f'SP_TRY(Train(resumed, {last}, "resumed", job, stages, world));'] * (last > 0)


def copies(finding, plan, case):
    """When copies on side streams happen: "" for at once, "late" or "seeded", as verify/rank/worker.cc has them."""
    if plan.check == "places" or not case["training"]["offload"]:
        return ""
    return {"train": "late", "train_resume": "seeded"}.get(finding["phase"], "")


def phases_of(finding, plan):
    """The finding's phase, after the one that it resumes from or is held against."""
    before = "train" if finding["phase"] == "train_resume" else plan.kept_at[0] if plan.kept_at else ""
    return [before, finding["phase"]] if before not in ("", finding["phase"]) else [finding["phase"]]


def work(name, finding, plan, case, restored, *, saves_all):
    """The lines of a phase: what it does up to where the finding is.

    restored: the job that a restore is asked for
    saves_all: whether every save is made, and not only the one that matters
    """
    stage, step = moment_of(finding["stage"])
    is_target, is_async = name == finding["phase"], case["training"]["async"]
    whole, resumes = is_target and plan.whole, stage in ("restored", "resumed")
    if name == "train_resume":
        return resumed(case["steps"] if whole else step if stage == "resumed" else 0, restored)
    saves = saved_steps(case) if name == "train" else []
    if whole:
        return steps(saves, case["steps"], case) + (resumed(case["steps"], restored) if saves else [])
    # Up to where the program keeps what is expected; and what an async save writes is seen once steps have
    # been taken beside it.
    last = plan.kept_at[2] if plan.kept_at and plan.kept_at[0] == name else 0
    if saves and is_async and (resumes or plan.at_disk or plan.check == "reloads"):
        last = case["steps"]
    if plan.check == "reloads":
        return steps(saves[-1:], last, case) + RELOAD
    if not is_target and finding["phase"] != "train_resume":  # only gives what is expected
        return steps([], last, case)
    if is_target and stage in BEFORE_STEPS:
        return steps([], 0, case)
    if is_target and stage == "stepped":
        return steps([one for one in saves if saves_all and one < step], step, case)
    if is_target and stage == "saved" and step:
        saves = [one for one in saves if one <= step]
    lines = steps(saves if saves_all or plan.needs_saves else saves[-1:], last, case)
    return lines + resumed(step if stage == "resumed" else 0, restored) if is_target and resumes else lines
