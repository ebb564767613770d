"""The plain twin of a model with an adapter: PEFT itself puts it into the model, in one process."""

import os

from . import _file_pieces


def injected(model, case):
    """The model with the adapter of the case, which can be trained; and by what, for people."""
    import peft

    model = peft.PeftModel.from_pretrained(model, case.adapter, is_trainable=True)
    return model, f" and PeftModel.from_pretrained of peft {peft.__version__}"


def pieces_of(case, tensors, model):
    """(as _file_pieces.pieces_of, of what the adapter has; names of what its file lacks).

    Which key is whose, PEFT says, which would save it. What has another key is found by its bytes.
    """
    from safetensors import safe_open

    file = safe_open(os.path.join(case.adapter, "adapter_model.safetensors"), "pt")
    keys, names = set(file.keys()), _keys_by_memory(model)
    found, left = {}, []
    for held in tensors:
        if not held.also or not held.persistent or held.local is None:
            continue
        key = names.get(held.local.data_ptr())
        if key in keys and tuple(file.get_slice(key).get_shape()) == held.shape:
            found[held.name] = [{"key": key, "start": 0, "count": held.local.numel()}]
        else:
            left.append(held)
    keys -= {piece["key"] for pieces in found.values() for piece in pieces}
    found |= _file_pieces.pieces_of(left, file.get_tensor, keys)
    return found, [held.name for held in left if held.name not in found]


def _keys_by_memory(model) -> dict[int, str]:
    from peft import get_peft_model_state_dict

    if not hasattr(model, "peft_config"):
        return {}
    state = get_peft_model_state_dict(model, save_embedding_layers=False)
    before = "base_model.model."  # which Transformers' own integration leaves out
    return {
        value.data_ptr(): key if key.startswith(before) else before + key
        for key, value in state.items()
    }
