"""The model of a case, loaded as the documentation of its library does it in one process."""

from shardproof.case import dtype_argument


def loaded(case, **words):
    """The model on the CPU with the checkpoint's values, the missing and the unexpected keys.

    Of Transformers it is what from_pretrained(checkpoint, **words) returns; of --model what its
    function returns, after load_state_dict.
    """
    if case.model.get("factory") or case.model.get("tensors"):
        model = case.build("cpu")
        keys = model.load_state_dict(case.state_dict(), strict=False)
        return model, keys.missing_keys, keys.unexpected_keys
    model, keys = case.model_class().from_pretrained(
        case.checkpoint, output_loading_info=True, **{dtype_argument(): "auto"}, **words
    )
    return model, list(keys["missing_keys"]), list(keys["unexpected_keys"])
