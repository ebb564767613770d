"""Which modules a loss was computed with in training mode."""

from .._holdings._names import canonical_name


def unlike_the_model(model) -> dict[str, bool]:
    """By name, of modules that are in another mode than the model, such as a frozen teacher or a
    backbone whose statistics stay: whether they are training."""
    return {
        canonical_name(model, prefix, "").rstrip("."): module.training
        for prefix, module in model.named_modules()
        if module.training != model.training
    }


def put(model, trains, unlike):
    """Puts a model in those modes."""
    model.train(trains)
    for name, module in model.named_modules():
        module.training = unlike.get(name, module.training)


def evaluating(model) -> list[str]:
    """Modules that a plain model, which is training, has in evaluation mode: outermost ones."""
    found = [name for name, trains in unlike_the_model(model).items() if not trains]
    return [
        name for name in found if not any(name.startswith(f"{outer}.") for outer in found)
    ]  # fmt: skip


def trained(batch, evaluating) -> str:
    """A module that was training in a loss, of those that are to be evaluating; "" if none was.
    Those of which no tensor was used under that name are not known."""
    if not batch.trains:
        return ""
    known = [name for name in evaluating if any(key.startswith(f"{name}.") for key in batch.dtypes)]
    return next((name for name in known if batch.modes.get(name, True)), "")
