"""shardproof.check, observe and an attached run tell jobs as people train them from those with a
mistake on one rank."""

from told_jobs import JobsTest

BATCHES = "statistics of each rank's own batches, which differ"

TRAINED = {
    "ema sound": "sound",
    "ema bit": "average.module.1.weight on rank 1: element 7 is 0x",
    "accumulating sound": "sound",
    "accumulating bit": "0.bias on rank 1: element 2 is 0x",
    "frozen_tower sound": "sound",
    "frozen_tower bit": "0.weight on rank 3: element 17 is 0x",
    "frozen_tower thawed": "0.weight on rank 3: it needs a gradient, but on the other ranks it does"
    " not",
    "lora sound": "sound",
    "lora bit": "1.lora_b on rank 2: element 1 is 0x",
    "tables sound": "sound; cached (a buffer that is not saved and differs in size between ranks)",
    "tables bit": "inv_freq on rank 1: element 1 is 0x",
    "random_state sound": "sound; rng_state (each rank's own, such as a state of its random"
    " numbers)",
    "random_state bit": "1.bias on rank 1: element 0 is 0x",
    "balanced sound": f"sound; tokens_per_expert ({BATCHES})",
    "balanced bit": "expert_bias on rank 1: element 3 is 0x",
    "tied_stages sound": "sound",
    "tied_stages drift": "embedding on ranks 2, 3: this name is a different tensor",
    "tied_stages bit": "layer1.weight on rank 3: element 4 is 0x",
    "context_parallel sound": "sound",
    "context_parallel nan": "optimizer.0.weight.exp_avg on rank 2: 1 NaN and 0 Inf, the first at"
    " element 18",
    "context_parallel rate": "optimizer.0.bias.options on rank 2: its lr is 0.002, on the other"
    " ranks 0.001",
    "sequence_parallel sound": "sound",
    "sequence_parallel bit": "1.bias on rank 3: element 1 is 0x",
    "sequence_parallel part": "1.weight on rank 3: element 10 is 0x",
    "odd_world sound": "sound",
    "odd_world bit": "1.bias on rank 2: element 1 is 0x",
    "replicas_alone sound": "sound",
    "replicas_alone bit": "0.weight on rank 0: element 9 is 0x",
    "strided sound": "sound",
    "strided nan": "0.weight on rank 3: 1 NaN and 0 Inf, the first at element 30",
    "awaiting sound": "sound; count (partial values)",
    "awaiting bit": "0.bias on rank 1: element 3 is 0x",
    "expert_lists sound": "sound",
    "expert_lists bit": "1.weight on rank 1: element 3 is 0x",
    "expert_lists nan": "experts.1.weight on rank 1: 1 NaN and 0 Inf, the first at element 7",
    "ignored_experts sound": "sound",
    "ignored_experts bit": "1.weight on rank 2: element 11 is 0x",
    "compiled sound": "sound",
    "compiled bit": "0.weight on rank 1: element 6 is 0x",
    "recomputed sound": "sound",
    "recomputed bit": "0.weight on rank 3: element 16 is 0x",
    "offloaded sound": "sound",
    "offloaded bit": "optimizer.1.bias.exp_avg on rank 2: element 1 is 0x",
    "original_parameters sound": "sound",
    "original_parameters decay": "optimizer.1.bias.options on rank 1: its weight_decay is 0, on"
    " rank 0 0.01",
    "original_parameters nan": "0.weight on rank 1: 1 NaN and 0 Inf, the first at element 18",
}

# The options of a parameter go by its name.
TRAINED_FINDS = {
    "context_parallel rate": ("0.bias", [2]),
    "original_parameters decay": ("1.bias", [1]),
}


class Trained(JobsTest):
    script, says, finds = "trained_jobs.py", TRAINED, TRAINED_FINDS
    labels = "selftest multi-rank framework nightly"
    timeout_s = 1200
    seconds = 1000

    def test_trained_checked(self):
        self.told_right()

    def test_trained_observed(self):
        self.found_in_evidence()

    def test_trained_attached(self):
        """Of the others no model is seen, or (odd_world) nothing shows who holds the tensor."""
        self.found_attached((
            "accumulating", "frozen_tower", "lora", "context_parallel", "replicas_alone",
            "ignored_experts", "compiled", "recomputed", "offloaded", "original_parameters",
        ))  # fmt: skip
