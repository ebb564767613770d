"""A checkpoint of random values in place of the real one."""

import dataclasses
import json
import os
import shutil

import torch


@dataclasses.dataclass
class RandomCheckpoint:
    """Has the keys, dtypes and number of files of the one in question, as far as they differ from
    what the model would save.

    lacks: keys that the model has and the checkpoint has not
    extra: {key that the model does not have: (dtype, shape)}
    other_dtype: {key: dtype}
    config: path of a config.json to copy, or None
    """

    lacks: list = dataclasses.field(default_factory=list)
    extra: dict = dataclasses.field(default_factory=dict)
    other_dtype: dict = dataclasses.field(default_factory=dict)
    files: int = 1
    config: str | None = None

    def write(self, directory, build):
        """build() gives the model on the meta device, once config.json is there."""
        from safetensors.torch import save_file

        os.makedirs(directory)
        if self.config:
            shutil.copyfile(self.config, f"{directory}/config.json")
        torch.manual_seed(0)
        wanted = {name: (t.dtype, t.shape) for name, t in build().state_dict().items()}
        tensors = {}
        for name, (dtype, shape) in sorted((wanted | self.extra).items()):
            if name not in self.lacks:
                tensors[name] = (torch.randn(shape) * 100).to(self.other_dtype.get(name, dtype))
        names, index = list(tensors), {}
        for number in range(self.files):
            file_name = f"model-{number + 1:05d}-of-{self.files:05d}.safetensors"
            if self.files == 1:
                file_name = "model.safetensors"
            part = {name: tensors[name] for name in names[number :: self.files]}
            save_file(part, f"{directory}/{file_name}", metadata={"format": "pt"})
            index.update(dict.fromkeys(part, file_name))
        with open(f"{directory}/model.safetensors.index.json", "w") as file:
            json.dump({"metadata": {}, "weight_map": index}, file)
