"""Asks Transformers how the tensors of a checkpoint fit the model that its config.json describes.

usage: _fits_config.py DIRECTORY

The model is built on the meta device, so no weights are read but the headers of their files. The
last line on stdout is JSON: `model`, `missing` and `unexpected` keys, and `mismatched` as lists of
a key, the shape found and the shape of the model; or `error`, why there is no answer. Nothing of
the checkpoint's own code is run.
"""

import json
import os
import sys
import tempfile

_KEYS_MAX = 10_000


def fit(directory: str) -> dict:
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    config = transformers.AutoConfig.from_pretrained(directory)
    named = (config.architectures or [None])[0]
    kind = getattr(transformers, named, None) if named else None
    if kind is None:
        return {"error": f"Transformers {transformers.__version__} has no architecture {named!r}"}
    with torch.device("meta"):
        _, info = kind.from_pretrained(
            directory, config=config, device_map="meta", output_loading_info=True,
            ignore_mismatched_sizes=True,
        )  # fmt: skip
    return {
        "model": f"{named} of Transformers {transformers.__version__}",
        "missing": sorted(map(str, info["missing_keys"]))[:_KEYS_MAX],
        "unexpected": sorted(map(str, info["unexpected_keys"]))[:_KEYS_MAX],
        "mismatched": sorted(
            [str(key), list(found), list(wanted)] for key, found, wanted in info["mismatched_keys"]
        )[:_KEYS_MAX],
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = scratch  # torch makes one where it is imported
        try:
            answer = fit(sys.argv[1])
        except Exception as error:  # of a library that knows many formats and says each in its way
            first = next(iter(str(error).strip().splitlines()), "")
            answer = {"error": f"{type(error).__name__}: {first}"}
    print(json.dumps(answer))
