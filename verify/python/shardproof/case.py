"""The Case as a subject sees it."""

import dataclasses
import importlib.util
import json
import math
import pathlib
import sys
import zlib
from typing import ClassVar

import torch
from torch import nn

from ._case_defaults import ROPE, TENSOR
from ._dtypes import DTYPES
from ._mesh import LaidOver, divided
from ._phases import MEMORY, MEMORY_PLAIN


@dataclasses.dataclass
class Case:
    """What one launch asks of a subject.

    rank, world_size: this process's; the default process group (Gloo) is initialised.
    checkpoint: directory of safetensors, with config.json if the model is a Hugging Face one; or
    one file.
    adapter: directory of a PEFT adapter that is to be loaded with the model; "" if there is none.
    save_to: where to save; in a resume phase, where the checkpoint to restore lies.
    mesh: {axis name: ranks}, e.g. {"dp_replicate": 2, "dp_shard": 2}; their product is the world.
    laid_over: axes that divide some of those: {"ep": LaidOver(2, ("dp_shard",))}.
    phase: "values", "plain", "resume", "one_reads", "train", "again", "train_resume" or "memory";
    strategy: "rank0-broadcast" or "plain".
    steps: optimizer steps to take; 0 in the phases that do not train.
    options: what the subject's OPTIONS declares, each with the value that was chosen.
    """

    rank: int
    world_size: int
    checkpoint: str
    save_to: str
    mesh: dict[str, int]
    phase: str
    strategy: str
    seed: int
    saves: bool
    resumes: bool
    steps: int = 0
    options: dict[str, str] = dataclasses.field(default_factory=dict)
    model: dict = dataclasses.field(repr=False, default_factory=dict)
    laid_over: dict[str, LaidOver] = dataclasses.field(default_factory=dict)

    watched: ClassVar = None  # called in place of `loss`, with the case and what that is given

    @property
    def adapter(self) -> str:
        return self.model.get("adapter", "")

    @property
    def measures_memory(self) -> bool:
        """Whether this phase looks at memory: nothing is to be restored beside the model."""
        return self.phase in (MEMORY, MEMORY_PLAIN)

    @property
    def saved_step(self) -> int:
        """The step after which to save: from there on the job is resumed, too."""
        return self.steps // 2

    @property
    def dtypes(self) -> dict[str, torch.dtype]:
        """The dtype of every key of the checkpoint, from the headers of its files."""
        return {key: DTYPES[file.get_slice(key).get_dtype()] for file, key in self.entries()}

    @property
    def ties(self) -> list[list[str]]:
        """Groups of names that must share memory, as the model's own class ties them."""
        if self.model.get("tensors"):
            return self.model.get("ties", [])
        names: dict[nn.Parameter, list[str]] = {}
        for name, parameter in self.build("meta").named_parameters(remove_duplicate=False):
            names.setdefault(parameter, []).append(name)
        return [group for group in names.values() if len(group) > 1]

    def device_mesh(self, *laid_over: str):
        """A DeviceMesh of all ranks on the CPU, row by row, with the axes of `mesh`.

        laid_over: names of axes in `laid_over`. Each takes the place of the axes that it divides,
        with what it leaves of them before it: device_mesh("ep") of dp_shard 4 x tp 2 with ep 2 over
        dp_shard has the axes dp_shard_mod_ep 2, ep 2 and tp 2. Axes that are not neighbours in
        `mesh` become so. All ranks must call it alike.

        \\raises ValueError for a name that is none of these, or two that divide the same axis.
        """
        from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

        if not laid_over:
            sizes = tuple(self.mesh.values())
            return init_device_mesh("cpu", sizes, mesh_dim_names=tuple(self.mesh))
        axes, ranks = divided(self.mesh, self.laid_over, laid_over)
        return DeviceMesh("cpu", ranks, mesh_dim_names=axes)

    def build(self, device="meta") -> nn.Module:
        """The model with every tensor as its class makes it on `device`; values mean nothing yet.

        With --model FILE.py:FUNCTION it is what that function returns. A Hugging Face model is what
        the class that config.json names makes of it; a synthetic one is a tree of modules whose
        forward takes and gives a scalar and uses every parameter.
        """
        if self.model.get("tensors"):
            return _build_synthetic(self.model, device)
        if self.model.get("factory"):
            with torch.device(device):
                return load_factory(self.model["factory"])()
        config = self._config()
        model_class = self.model_class()
        make = getattr(model_class, "_from_config", None) or model_class.from_config
        dtype = self._dtype_of(config)
        with torch.device(device):
            model = make(config, **{dtype_argument(): dtype})
        _keep_in_fp32(model, dtype)
        model.tie_weights()
        return model

    def model_class(self):
        """The class of Transformers that config.json names; AutoModelForCausalLM if it names none
        that is known."""
        import transformers

        names = getattr(self._config(), "architectures", None) or []
        found = [getattr(transformers, name, None) for name in names]
        return next((each for each in found if each is not None), transformers.AutoModelForCausalLM)

    def _config(self):
        import transformers

        return transformers.AutoConfig.from_pretrained(self.checkpoint)

    def _dtype_of(self, config) -> torch.dtype:
        """As from_pretrained with dtype="auto": the config's, else that of the first key of a
        floating-point dtype."""
        own = getattr(config, "dtype", None) or getattr(config, "torch_dtype", None)
        floats = (dtype for dtype in self.dtypes.values() if dtype.is_floating_point)
        return own or next(floats, torch.float32)

    def loss(self, model: nn.Module, step: int) -> torch.Tensor:
        """A scalar to train on, of the batch that seed, rank and step determine."""
        return Case.watched(self, model, step) if Case.watched else self.plain_loss(model, step)

    def plain_loss(self, model: nn.Module, step: int) -> torch.Tensor:
        """A scalar to train on: the model's own loss on a batch that seed, rank and step determine.

        It draws from the default random number generator once, as dropout would, so that a resume
        which does not restore its state shows.
        """
        torch.rand(1)
        if self.model.get("tensors"):
            return model(torch.tensor(0.0)) * (1 + 0.25 * self.rank + 0.125 * step)
        if self.model.get("factory"):
            own = getattr(sys.modules[load_factory(self.model["factory"]).__module__], "loss", None)
            if own is None:
                raise ValueError(
                    "case.loss: it is not known how a model of --model is trained: "
                    "expected def loss(model, case, step) in "
                    f"{self.model['factory'].rpartition(':')[0]}"
                )
            return own(model, self, step)
        generator = torch.Generator().manual_seed(
            zlib.crc32(f"{self.seed} {self.rank} {step}".encode())
        )
        inner = model
        # A wrapper can have a config of its own: DeepSpeed's is a dict.
        while hasattr(inner, "module") and isinstance(getattr(inner, "config", {}), dict):
            inner = inner.module
        config = getattr(inner.config, "text_config", inner.config)  # a vision model has two
        tokens = torch.randint(config.vocab_size, (2, 8), generator=generator)
        return model(input_ids=tokens, labels=tokens).loss

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The checkpoint's tensors by key, read with safetensors; memory-mapped where it can."""
        return {key: file.get_tensor(key) for file, key in self.entries()}

    def entries(self):
        """(open file, key) of every tensor of the checkpoint. A file is closed when nobody has it
        any more."""
        from safetensors import safe_open

        root = pathlib.Path(self.checkpoint)
        for path in [root] if root.is_file() else sorted(root.glob("*.safetensors")):
            file = safe_open(path, "pt")
            for key in file.keys():
                yield file, key


def load_factory(text: str):
    """The function that "FILE.py:FUNCTION" names. \\raises ValueError in one line."""
    path, _, name = text.rpartition(":")
    stem = pathlib.Path(path).stem
    module = sys.modules.get(stem)
    if module is None or getattr(module, "__file__", None) != path:
        spec = importlib.util.spec_from_file_location(stem, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules.setdefault(stem, module)
        sys.path.insert(0, str(pathlib.Path(path).resolve().parent))
        spec.loader.exec_module(module)
    factory = getattr(module, name, None)
    if not callable(factory):
        raise ValueError(f"--model {text}: {path} has no function {name}")
    return factory


def _keep_in_fp32(model, dtype):
    """Casts the modules that from_pretrained keeps in F32 whatever dtype is asked for; from_config
    does not."""
    kept = set(getattr(model, "_keep_in_fp32_modules_strict", None) or ())
    if dtype == torch.float16:
        kept |= set(getattr(model, "_keep_in_fp32_modules", None) or ())
    for name, parameter in model.named_parameters():
        if parameter.dtype in (torch.float16, torch.bfloat16) and kept & set(name.split(".")):
            parameter.data = parameter.data.float()


def dtype_argument() -> str:
    """What Transformers calls it: torch_dtype until version 5."""
    import transformers

    return "dtype" if int(transformers.__version__.partition(".")[0]) >= 5 else "torch_dtype"


class _Node(nn.Module):
    """A module of a synthetic model. Its forward adds a scalar of each of its own tensors."""

    def __iter__(self):  # as the layers of a real model, which are a ModuleList
        return self.children()

    def forward(self, x):
        for parameter in self._parameters.values():
            if parameter is not None and parameter.is_floating_point():
                x = x + parameter.to(torch.float32).square().sum()
        for child in self.children():
            x = child(x)
        return x


def _inverse_frequencies(rope: dict, count: int) -> torch.Tensor:
    """F32 [count], as Transformers' `modeling_rope_utils` computes them when a model is built."""
    rope = ROPE | rope
    kind, theta, factor = rope["rope_type"], rope["rope_theta"], rope["factor"]
    dim = rope["dim"] or 2 * count
    powers = theta ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim)
    plain = 1.0 / powers
    if kind in ("default", "dynamic"):
        return plain
    if kind == "linear":
        return plain / factor
    if kind == "proportional":
        return torch.where(torch.arange(count) < rope["rotated"], plain, 0.0) / factor
    if kind == "longrope":
        return 1.0 / (torch.tensor(rope["short_factor"], dtype=torch.float32) * powers)
    length = rope["original_max_position_embeddings"]
    if kind == "llama3":
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        wavelength = 2 * math.pi / plain
        smooth = (length / wavelength - low) / (high - low)
        scaled = torch.where(wavelength > length / low, plain / factor, plain)
        between = (wavelength >= length / high) & (wavelength <= length / low)
        return torch.where(between, (1 - smooth) * scaled / factor + smooth * scaled, scaled)

    def turns(rotations):
        return dim * math.log(length / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    first, last = turns(rope["beta_fast"]), turns(rope["beta_slow"])
    if rope["truncate"]:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, dim - 1)
    span = last - first or 0.001
    ramp = torch.clamp((torch.arange(dim // 2, dtype=torch.float32) - first) / span, 0, 1)
    kept = 1 - ramp
    return 1.0 / (factor * powers) * (1 - kept) + plain * kept


def _laid_out(tensor: torch.Tensor, spec: dict) -> torch.Tensor:
    """The tensor in memory of the strides that the spec gives, if it gives any."""
    if not spec["strides"]:
        return tensor
    strided = torch.empty_strided(
        spec["shape"], spec["strides"], dtype=tensor.dtype, device=tensor.device
    )
    return strided.copy_(tensor)


def _fresh(spec: dict, name: str, device) -> torch.Tensor:
    """A tensor as its module's constructor would leave it."""
    dtype = DTYPES[spec["dtype"]]
    if str(device) == "meta":
        return _laid_out(torch.empty(spec["shape"], dtype=dtype, device=device), spec)
    if "rope" in spec:
        return _inverse_frequencies(spec["rope"], spec["shape"][0])
    if spec["init"] == "zeros":
        return _laid_out(torch.zeros(spec["shape"], dtype=dtype), spec)
    if spec["init"] == "ones":
        return _laid_out(torch.ones(spec["shape"], dtype=dtype), spec)
    # By name, so that no order of construction matters.
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    values = torch.rand(spec["shape"], generator=generator) * 0.04 - 0.02
    real = dtype.is_floating_point or dtype.is_complex
    return _laid_out(values.to(dtype) if real else (values * 5000).to(dtype), spec)


def _build_synthetic(model: dict, device) -> nn.Module:
    root = _Node()
    made: dict[str, nn.Parameter | torch.Tensor] = {}
    first_of = {name: tie[0] for tie in model.get("ties", []) for name in tie[1:]}
    specs = [TENSOR | spec for spec in model["tensors"]]
    by_name = {spec["name"]: spec for spec in specs}

    def tensor_of(spec):
        name = first_of.get(spec["name"], spec["name"])
        if name in made:
            return made[name]
        origin = by_name.get(name, spec)
        data = _fresh(origin, name, "cpu" if origin["built_real"] else device)
        if origin["kind"] == "parameter":
            data = nn.Parameter(data, requires_grad=origin["requires_grad"])
        for key, value in origin["attributes"].items():
            setattr(data, key, value)
        made[name] = data
        return data

    for spec in specs:
        *path, leaf = spec["name"].split(".")
        module = root
        for part in path:
            if part not in module._modules:
                if hasattr(module, part):
                    raise ValueError(
                        f"tensor '{spec['name']}': '{part}' is an attribute of torch.nn.Module"
                    )
                module.add_module(part, _Node())
            module = module._modules[part]
        tensor = tensor_of(spec)
        if hasattr(module, leaf):
            raise ValueError(
                f"tensor '{spec['name']}': '{leaf}' is an attribute of torch.nn.Module"
            )
        if isinstance(tensor, nn.Parameter):
            module.register_parameter(leaf, tensor)
        else:
            module.register_buffer(leaf, tensor, persistent=spec["persistent"])
    return root


def read_order(path: str, rank: int) -> tuple[Case, dict]:
    """The case of one rank, and everything else that the launcher's order says."""
    order = json.loads(pathlib.Path(path).read_text())
    case = Case(
        rank=rank,
        world_size=order["world_size"],
        checkpoint=order["source"] if rank == 0 else order.get("others_source") or order["source"],
        save_to=order["save_to"],
        mesh={axis["name"]: axis["size"] for axis in order["mesh"]},
        laid_over={
            axis["name"]: LaidOver(axis["size"], tuple(axis["over"]))
            for axis in order.get("laid_over", [])
        },
        phase=order["phase"],
        strategy=order["strategy"],
        seed=order["case"]["seed"],
        saves=order["saves"],
        resumes=order["resumes"],
        steps=order["steps"],
        options=order["case"]["options"],
        model=order["case"]["model"],
    )
    return case, order
