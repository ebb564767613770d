"""shardproof.check, observe and an attached run tell optimizers of many kinds from those with a
mistake on one rank."""

from told_jobs import JobsTest

OWNED = "only some ranks have it, since the optimizer divides the parameters"

STEPPED = {
    "in_backward sound": "sound",
    "in_backward bit": "optimizer.1.bias.exp_avg_sq on rank 1: element 2 is 0x",
    "layer_rates sound": "sound",
    "layer_rates rate": "optimizer.1.weight.options on rank 1: its lr is 0.0405, on rank 0 0.045",
    "layer_rates betas": "optimizer.0.bias.options on rank 1: its betas[1] is 0.95, on rank 0"
    " 0.999",
    "layer_rates frozen": "0.bias on rank 1: it needs no gradient, but on the other ranks it does",
    "eight_bit sound": "sound",
    "eight_bit bit": "optimizer.1.weight.state1 on rank 1: element 13 is 0x6d, on rank 0 0x6c",
    "schedule_free sound": "sound",
    "schedule_free bit": "optimizer.0.weight.z on rank 1: element 8 is 0x",
    "shampoo sound": "sound",
    "shampoo bit": "optimizer.0.weight.preconditioners[1] on rank 1: element 6 is 0x",
    "owned sound": f"sound; optimizer.0.bias.exp_avg and 11 more ({OWNED})",
    "owned bit": "0.weight on rank 3: element 2 is 0x",
    # Nobody said that the job is to train all of its model: the report tells what no rank steps.
    "owned nobodys": f"sound; optimizer.0.bias.exp_avg and 8 more ({OWNED})",
    "loaded_in_part sound": "sound",
    "loaded_in_part lost": "optimizer.0.bias.exp_avg on rank 1: there is no such tensor",
    "loaded_in_part bit": "optimizer.0.bias.exp_avg on rank 1: element 5 is 0x",
    "late_stage sound": "sound",
    "late_stage late": "optimizer.<optimizer 1 of 1, AdamW>.steps on ranks 2, 3: its count of steps"
    " is 1, on the other ranks 2",
    "late_stage bit": "optimizer.layer1.bias.exp_avg on rank 3: element 2 is 0x",
}

# The options of a parameter go by its name.
STEPPED_FINDS = {
    "layer_rates rate": ("1.weight", [1]),
    "layer_rates betas": ("0.bias", [1]),
    "late_stage late": ("<optimizer 1 of 1, AdamW> on 0 to 3", [2, 3]),
}


class Stepped(JobsTest):
    script, says, finds = "stepped_jobs.py", STEPPED, STEPPED_FINDS
    labels = "selftest multi-rank framework nightly"
    timeout_s = 1200
    seconds = 1000

    def test_stepped_checked(self):
        self.told_right()

    def test_stepped_observed(self):
        self.found_in_evidence()
        done = self.shardproof("report", self.dir / "evidence" / "owned nobodys", "--json", "-")
        properties = {each["id"]: each for each in done.json()["properties"]}
        live = properties["training.optimizer_live"]
        self.assertEqual(live["verdict"], "inconclusive")
        self.assertIn("no rank's optimizer holds 1.bias at `ready.optimizer`", live["reason"])

    def test_stepped_attached(self):
        self.found_attached(("layer_rates", "schedule_free"))
