"""Accelerate's FSDP2 on a CPU, really that.

Accelerate chooses FSDP for accelerators alone: on a CPU it prepares DDP, whatever plugin it was
given, and says nothing. Here it is told that the job is one of FSDP, and what it has prepared is
looked at.
"""

import torch
from torch.distributed.fsdp import FSDPModule


class AccelerateFsdp2:
    """An Accelerator with FSDP2 over Gloo.

    options: of FullyShardedDataParallelPlugin; cpu_ram_efficient_loading is on unless they say
    otherwise. All ranks are on one axis: case.mesh is {"dp_shard": world}.

    \\raises NotImplementedError for another mesh.
    """

    def __init__(self, case, **options):
        if list(case.mesh) != ["dp_shard"]:
            raise NotImplementedError(f"Accelerate's FSDP2 takes all ranks, not {case.mesh}")
        from accelerate import Accelerator, FullyShardedDataParallelPlugin
        from accelerate.state import AcceleratorState, PartialState
        from accelerate.utils import DistributedType

        plugin = FullyShardedDataParallelPlugin(
            fsdp_version=2, **{"cpu_ram_efficient_loading": True, **options}
        )
        self.accelerator = Accelerator(cpu=True, fsdp_plugin=plugin)
        for state in (PartialState(), AcceleratorState()):
            state.distributed_type = DistributedType.FSDP
        AcceleratorState().fsdp_plugin = plugin
        self._case, self._efficient = case, plugin.cpu_ram_efficient_loading

    def content(self, model):
        """For observe(content=). With efficient loading only rank 0 reads the files: elsewhere what
        a state dict holds has no value before it is prepared. Buffers that it does not hold are
        computed by each rank."""
        if self._case.rank == 0 or not self._efficient:
            return None
        held = set(model.state_dict())
        return lambda name: "undefined" if name in held else "defined"

    def prepare(self, model, optimizer):
        """One model at a time: what was prepared before is no longer saved or restored.

        \\raises RuntimeError if anything but FSDP2 comes out.
        """
        self.accelerator.free_memory()
        model, optimizer = self.accelerator.prepare(model, optimizer)
        if not isinstance(model, FSDPModule):
            raise RuntimeError(f"Accelerate prepared a {type(model).__name__}, which is not FSDP2")
        if not hasattr(optimizer, "accelerator_state"):
            raise RuntimeError(f"Accelerate left the optimizer as {type(optimizer).__name__}")
        return model, optimizer

    def save(self, *_):
        """The model, the optimizer and each rank's random number generator."""
        self.accelerator.save_state(self._case.save_to)

    def restore(self, *prepared):
        """Fills what prepare() gave from what save() wrote."""
        random = torch.get_rng_state()
        self.accelerator.load_state(self._case.save_to)
        if self._case.resumes:  # there are other ranks, with streams of their own
            torch.set_rng_state(random)
        return prepared
