"""`shardproof.SealingWriter`: a StorageWriter of DCP that seals what it saves."""

import os

from torch.distributed.checkpoint import StorageWriter

from ._seal import seal, write_seal


class SealingWriter(StorageWriter):
    """Saves by another StorageWriter, and writes the seal of what was given to it.

    dcp.save(state, storage_writer=SealingWriter(FileSystemWriter("step-90"), "step-90.seal.json"))

    The digests are those of the values in memory, so `shardproof audit step-90 --seal
    step-90.seal.json` also finds what went wrong on the way to the disk. The seal is written once
    the metadata are, by rank 0. Every rank takes part, so it is for `dcp.save` and not for
    `async_save`. options: `prefix`, `ignore`, `deadline` and `replace`, as of `shardproof.seal`.
    """

    def __init__(self, writer, to, replace=False, **options):
        self._writer, self._to, self._replace, self._options = writer, to, replace, options
        self._manifest, self._is_coordinator = None, False

    def __getattr__(self, name):
        if name == "_writer":  # not set yet, as while it is unpickled
            raise AttributeError(name)
        return getattr(self._writer, name)

    def reset(self, checkpoint_id=None):
        self._writer.reset(checkpoint_id)

    def set_up_storage_writer(self, is_coordinator, *args, **kwargs):
        if is_coordinator and not self._replace and os.path.lexists(self._to):
            raise FileExistsError(f"{self._to}: replace=True writes it anew")  # before any data
        self._is_coordinator = is_coordinator
        self._writer.set_up_storage_writer(is_coordinator, *args, **kwargs)

    def prepare_local_plan(self, plan):
        return self._writer.prepare_local_plan(plan)

    def prepare_global_plan(self, plans):
        return self._writer.prepare_global_plan(plans)

    def write_data(self, plan, planner):
        # The planner's is the flattened one, with the names that the checkpoint has.
        self._manifest = seal(planner.state_dict, **self._options)
        return self._writer.write_data(plan, planner)

    def finish(self, metadata, results):
        self._writer.finish(metadata, results)
        if self._is_coordinator:  # without collectives, every rank comes here
            write_seal(self._to, self._manifest.seal, self._replace)

    def storage_meta(self):
        return self._writer.storage_meta()

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id):
        return True  # the other one says so when it is reset
