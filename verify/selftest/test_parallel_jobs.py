"""shardproof.check tells sound jobs of many kinds of parallelism from those with a mistake."""

from command import without_device
from told_jobs import JobsTest

SAYS = {
    "stages sound": "sound",
    "stages index": "layer0 on ranks 2, 3: this name is a different tensor than on ranks [0, 1]",
    "stages drift": "layer1 on rank 3: element 7 is 0x",
    "stages shared": "shared on ranks 2, 3: this name is a different tensor",
    "chunks sound": "sound; layer0 and 3 more (nothing says which ranks hold the same)",
    "chunks twice": "layer0 on ranks 0, 1: two of this rank's chunks have a tensor of this name",
    "chunks nan": "layer1 on rank 2: 1 NaN and 0 Inf, the first at element 1",
    "tensor_parallel sound": "sound",
    "tensor_parallel norm": "norm on rank 3: element 1 is 0x",
    "tensor_parallel part": "down on rank 3: element 21 is 0x",
    "told_layout sound": "sound",
    "told_layout part": "up on rank 2: element 0 is 0x",
    "experts sound": "sound",
    "experts router": "router on rank 2: element 4 is 0x",
    "shared_experts sound": "sound",
    "shared_experts expert": "expert on rank 3: element 1 is 0x",
    "meshes sound": "sound",
    "meshes router": "router on rank 2: element 1 is 0x",
    "uneven sound": "sound",
    "uneven element": "w on rank 3: element 15 is 0x",
    "uneven overlap": "w on ranks 0, 1: the shards of these ranks do not tile the tensor",
    "hybrid sound": "sound",
    "hybrid step": "optimizer.0.bias.step on rank 1: element 0 is 0x40000000",
    "hybrid moment": "optimizer.0.bias.exp_avg on rank 3: element 4 is 0x",
    "hybrid no_state": "optimizer.0.bias.exp_avg on rank 1: there is no such tensor",
    "owners sound": "sound",
    "owners stale": "1.weight on rank 1: element 0 is 0x",
    "several sound": "sound",
    "several moment": "optimizer.0.bias.exp_avg on rank 3: element 2 is 0x",
    "several factor": "optimizer.1.weight.row_var on rank 3: element 1 is 0x",
    "codes sound": "sound",
    "codes norm": "norm on rank 0: 1 NaN and 0 Inf, the first at element 2",
    "codes copied": "weight on rank 2: element 5 is 0x",
    "parts sound": "sound",
    "parts whole": "whole.b on rank 2: element 7 is 0x",
    "parts shard": "cut.a on rank 3: element 0 is 0x",
    "gathered sound": "sound",
    "gathered moment": "optimizer.1.weight.exp_avg on rank 2: 1 NaN and 0 Inf, the first at"
    " element 13",
    "ties sound": "sound",
    "ties untied": "head on rank 2: it shares memory with no other, on the other ranks with embed",
    "ties shared": "other on rank 1: it shares memory with embed, on the other ranks with no other",
    "batch_norm sound": "sound; 1.running_mean and 1 more (statistics of each rank's own batches,"
    " which differ)",
    "batch_norm before": "1.running_mean on rank 3: element 1 is 0x",
    "batch_norm weight": "1.weight on rank 3: element 2 is 0x",
    "batch_norm nan": "1.running_var on rank 3: 1 NaN and 0 Inf, the first at element 2",
    "contradicting sound": "w on ranks 0, 1: rank 0 says that ranks [0, 1, 2, 3] hold the same",
    "unheard sound": "RuntimeError: shardproof.check: groups or layout: no tensor of any rank is",
    "outside sound": "rank 2: ValueError: group: rank 2 is not in it: [0, 1]",
}

FINDS = {
    "chunks twice": None,  # inconclusive
    "codes norm": ("norm", [0, 1, 2, 3]),
    "contradicting sound": ("w", [0, 1]),
    "unheard sound": None,
    "outside sound": None,  # two ranks have no evidence
}


class ParallelJobs(JobsTest):
    script, says, finds = "parallel_jobs.py", SAYS, FINDS


class OnTheHost(ParallelJobs):
    labels = "selftest multi-rank framework"
    timeout_s = 300

    def test_checked(self):
        self.told_right("cpu")


class Observed(ParallelJobs):
    labels = "selftest multi-rank framework nightly"
    timeout_s = 300

    def test_observed(self):
        self.found_in_evidence("cpu", without=["outside sound"])


class OnAGpu(ParallelJobs):
    labels = "selftest multi-gpu framework"
    timeout_s = 300

    def test_checked_on_a_gpu(self):
        if why := without_device("cuda"):
            self.skipTest(why.removeprefix("skipped: "))
        self.told_right("cuda")
