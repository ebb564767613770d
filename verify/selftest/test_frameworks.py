"""Jobs of frameworks' own layers, wrappers and optimizers, sound and with a mistake, are told
right. Each framework is in an environment of its own, which `ci/environment NAME` makes."""

from told_jobs import JobsTest

MEGATRON = {
    "data_parallel sound": "sound",
    "data_parallel no_reduce": "decoder.final_layernorm.bias on ranks 1, 2, 3: element 0 is 0x",
    "tensor_parallel_layers sound": "sound",
    "tensor_parallel_layers norm": "decoder.final_layernorm.weight on rank 3: element 1 is 0x",
    "tensor_parallel_layers part": "decoder.layers.1.self_attention.linear_qkv.weight on rank 3:"
    " element 417 is 0x",
    "tensor_parallel_layers vocabulary": "embedding.word_embeddings.weight on rank 2: element 83",
    "sequence_parallel sound": "sound",
    "sequence_parallel no_reduce": "decoder.final_layernorm.bias on ranks 1, 3: element 0 is 0x",
    "pipeline sound": "sound",
    "pipeline drift": "decoder.layers.1.mlp.linear_fc1.bias on rank 3: element 4 is 0x",
    "interleaved sound": "sound",
    "interleaved drift": "decoder.layers.3.mlp.linear_fc1.bias on rank 3: element 4 is 0x",
    "tied_stages sound": "sound",
    "tied_stages untied": "embedding.word_embeddings.weight on ranks 2, 3: this name is a different"
    " tensor than on ranks [0, 1]: torch.float32 [64, 16]; element 18 is 0x",
    "all_three sound": "sound",
    "all_three norm": "decoder.final_layernorm.weight on rank 3: element 1 is 0x",
    "distributed_optimizer sound": "sound",
    "distributed_optimizer stale": "embedding.position_embeddings.weight on rank 2: element 0 is",
    "distributed_optimizer moment": "optimizer.decoder.final_layernorm.weight.exp_avg on rank 1:"
    " element 3 is 0x",
    "distributed_optimizer step": "optimizer.decoder.final_layernorm.weight.step on rank 1:"
    " element 0 is 0x40000000",
    "distributed_optimizer lost": "optimizer.decoder.final_layernorm.weight.exp_avg on rank 1:"
    " there is no such tensor",
    "masters sound": "sound",
    "masters master": "optimizer.decoder.final_layernorm.weight.main_param on rank 1: element 3",
    "experts sound": "sound",
    "experts expert": "decoder.layers.0.mlp.experts.local_experts.3.linear_fc2.weight on rank 3:"
    " element 66 is 0x",
    "experts router": "decoder.layers.1.mlp.router.weight on rank 2: element 18 is 0x",
    "experts_with_owners sound": "sound",
    "experts_with_owners expert": "decoder.layers.0.mlp.experts.local_experts.3.linear_fc2.weight"
    " on rank 3: element 66 is 0x",
}

# Of evidence: `report` names one rank at a time where none is like another.
MEGATRON_FINDS = {"data_parallel no_reduce": ("decoder.final_layernorm.bias", [1])}

DEEPSPEED = {
    "zero_1 sound": "sound",
    "zero_1 stale": "0.weight on rank 1: element 9 is 0x",
    "zero_1 nan": "optimizer.0.bias.exp_avg on rank 1: 1 NaN and 0 Inf, the first at element 5",
    "zero_1 step": "optimizer.0.bias.step on rank 1: element 0 is 0x40400000",
    "zero_1 lost": "optimizer.0.bias.exp_avg on rank 1: there is no such tensor",
    "zero_1_bf16 sound": "sound",
    "zero_1_bf16 stale": "0.weight on rank 1: element 9 is 0x",
    "zero_2 sound": "sound",
    "zero_2 stale": "0.weight on rank 1: element 9 is 0x",
    "zero_3 sound": "sound",
    "zero_3 stale": "2.bias on rank 1: element 1 is 0x",
    "zero_3 nan": "0.weight on rank 1: 1 NaN and 0 Inf, the first at element 16",
    "zero_3 cut": "0.weight on ranks 0, 1: the shards of these ranks do not tile the tensor",
    "zero_3 step": "optimizer.0.bias.step on rank 1: element 0 is 0x40400000",
    "two_groups sound": "sound",
    "two_groups bit": "0.weight on rank 1: element 9 is 0x",
    "two_groups decay": "optimizer.0.weight.options on rank 1: its weight_decay is 0.2, on rank 0",
    "experts sound": "sound",
    "experts expert": "moe.deepspeed_moe.experts.deepspeed_experts.3.0.weight on rank 3: element 13"
    " is 0x",
    "experts gate": "moe.deepspeed_moe.gate.wg.weight on rank 2: element 8 is 0x",
}

DEEPSPEED_FINDS = {"two_groups decay": ("0.weight", [1])}

MEGATRON_FSDP = {
    "sharded sound": "sound",
    "sharded nan": "0.weight on rank 1: 1 NaN and 0 Inf, the first at element 26",
    "sharded step": "optimizer.0.weight.step on rank 1: element 0 is 0x40800000",
    "whole sound": "sound",
    "whole bit": "0.weight on rank 1: element 1 is 0x",
    "hybrid sound": "sound",
    "hybrid bit": "0.weight on rank 3: element 26 is 0x",
}

TORCHTITAN = {
    "sharded sound": "sound",
    "sharded nan": "layers.1.attention.wo.weight on rank 2: 1 NaN and 0 Inf",
    "hybrid sound": "sound",
    "hybrid replica": "norm.weight on rank 3: element 129 is 0x",
    "tensor_parallel sound": "sound",
    "tensor_parallel norm": "norm.weight on rank 3: element 129 is 0x",
    "pipeline sound": "sound",
    "pipeline nan": "norm.weight on rank 3: 1 NaN and 0 Inf",
    "experts sound": "sound; layers.1.moe.tokens_per_expert_E and 4 more (statistics of each rank's"
    " own batches, which differ)",
    "experts nan": "layers.1.moe.routed_experts.inner_experts.w1_EFD on rank 3: 1 NaN and 0 Inf",
}


class Megatron(JobsTest):
    labels = "selftest multi-rank framework nightly"
    timeout_s = 600
    script, says, package = "megatron_jobs.py", MEGATRON, "megatron-core"
    finds = MEGATRON_FINDS
    seconds = 500

    def test_megatron_checked(self):
        self.told_right()

    def test_megatron_observed(self):
        self.found_in_evidence()

    def test_megatron_attached(self):
        self.found_attached({job.split()[0] for job in MEGATRON})

    def test_megatron_attached_as_alone(self):
        self.same_as_alone()


class DeepSpeed(JobsTest):
    labels = "selftest multi-rank framework nightly"
    timeout_s = 600
    script, says, package = "deepspeed_jobs.py", DEEPSPEED, "deepspeed"
    finds = DEEPSPEED_FINDS
    seconds = 500

    def test_deepspeed_checked(self):
        self.told_right()

    def test_deepspeed_observed(self):
        self.found_in_evidence()

    def test_deepspeed_attached(self):
        self.found_attached({job.split()[0] for job in DEEPSPEED})

    def test_deepspeed_attached_as_alone(self):
        self.same_as_alone()


class MegatronFsdp(JobsTest):
    labels = "selftest multi-rank framework nightly"
    timeout_s = 300
    script, says, package = "megatron_fsdp_jobs.py", MEGATRON_FSDP, "megatron-fsdp"

    def test_megatron_fsdp_checked(self):
        self.told_right()

    def test_megatron_fsdp_observed(self):
        self.found_in_evidence()

    def test_megatron_fsdp_attached(self):
        self.found_attached({job.split()[0] for job in MEGATRON_FSDP})

    def test_megatron_fsdp_attached_as_alone(self):
        self.same_as_alone()


class Torchtitan(JobsTest):
    labels = "selftest multi-rank framework nightly"
    timeout_s = 600
    script, says, package = "torchtitan_jobs.py", TORCHTITAN, "torchtitan"
    seconds = 500

    def test_torchtitan_checked(self):
        self.told_right()

    def test_torchtitan_observed(self):
        self.found_in_evidence()

    def test_torchtitan_attached(self):
        self.found_attached(("sharded", "hybrid", "tensor_parallel", "pipeline", "experts"))

    def test_torchtitan_attached_as_alone(self):
        self.same_as_alone()
