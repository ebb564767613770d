"""The options, such as the rate, that a plain schedule gives an optimizer before each step."""

import warnings

from .._holdings import _model, _optimizer

_NUMBERS = (int, float)


def of(plain, steps) -> list[dict]:
    """Of each step, by parameter: the options that it is taken with. Empty if the plain twin has no
    schedule."""
    if plain.schedule is None or plain.optimizer is None:
        return []
    owned = _optimizer.parameters_by_owner(_model.tensors_of(plain.model))
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it minds that nothing was stepped
        for _ in range(steps):
            found.append(_by_name(plain.optimizer, owned))
            plain.schedule.step()
    return found


def _by_name(optimizer, owned) -> dict:
    return {
        held.name: {key: float(value) for key, value in group.items() if _is_number(value)}
        for group in optimizer.param_groups
        for parameter in group["params"]
        for held in owned.get(id(parameter), [])[:1]
    }


def _is_number(value) -> bool:
    is_tensor = hasattr(value, "numel") and value.numel() == 1
    return is_tensor or (isinstance(value, _NUMBERS) and not isinstance(value, bool))


def hold(stage, expected, number, peers, after):
    """A step against that of the schedule. number: of steps before it. peers: of each rank."""
    if number >= len(expected):
        return
    found = {}
    for rank, (step, own) in enumerate(zip(peers, after, strict=True)):
        groups = own.steppers[step.number].groups
        for options, (_, names) in zip(step.options, groups, strict=False):
            for name in names:
                wanted = expected[number].get(name, {})
                stage.compared += 1
                for key, value in wanted.items():
                    if key in options and abs(float(options[key]) - value) > 1e-9 * abs(value):
                        found.setdefault((key, value, float(options[key])), {})[rank] = name
    for (key, value, seen), ranks in found.items():
        name = ranks[min(ranks)]
        stage.deviates("option", name, ranks,
                       f"{key} is {seen:.9g} in this step, and {value:.9g} by the schedule of the "
                       "plain twin", _cause(expected, name, key, seen, number))  # fmt: skip


def _cause(expected, name, key, seen, number) -> str:
    for other, options in enumerate(expected):
        if other != number and abs(options[name][key] - seen) <= 1e-9 * abs(seen):
            return f"it is that of step {other + 1}, and this is step {number + 1}"
    return ""
