"""shardproof.check, observe and an attached run tell jobs whose optimizers keep what they know in
ways of their own from those with a mistake."""

from told_jobs import JobsTest

STATE = {
    "projected sound": "sound",
    "projected own directions": "optimizer.0.weight.projector[ortho_matrix] on rank 1: element",
    "estimated sound": "sound",
    "estimated own sums": "optimizer.0.bias.options[alone, d, d_numerator] on rank 1: its d is",
    "one_after_the_other sound": "sound",
    "one_after_the_other moment": "optimizer.0.weight.<optimizer 2 of 2, Adam>.exp_avg on rank 1:"
    " element 3 is 0x",
    "line_search sound": "sound; optimizer.0.weight.prev_loss (a number that each rank's optimizer"
    " keeps, such as its loss: it differs)",
    "line_search direction": "optimizer.0.weight.d on rank 1: element 2 is 0x",
    "moved_to_files sound": "sound",
    "moved_to_files element": "optimizer.0.weight.exp_avg on rank 1: element 6 is 0x",
    "orthogonal sound": "sound",
    "orthogonal nesterov": "optimizer.0.weight.options on ranks 2, 3: its nesterov is",
}

# Of evidence, where what an optimizer was told is not a tensor.
FINDS = {
    "estimated own sums": ("0.bias", [1]),
    "orthogonal nesterov": ("0.weight", [2, 3]),
}


class State(JobsTest):
    script, says, finds = "state_jobs.py", STATE, FINDS
    labels = "selftest multi-rank framework nightly"
    timeout_s = 1200
    seconds = 1000

    def test_state_checked(self):
        self.told_right()

    def test_state_observed(self):
        self.found_in_evidence()

    def test_state_attached(self):
        self.found_attached({job.split()[0] for job in STATE})
