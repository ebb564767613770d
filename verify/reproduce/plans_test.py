"""Every plan names a check of harness/ that can be made with its arguments."""

import sys
import tempfile
import unittest

import script
from findings import NotShown
from plans import PLANS, Plan, plan_for

# harness/ as a script has it, with what it takes from the package.
FOLDER = tempfile.TemporaryDirectory()
script.write_harness(FOLDER.name)
sys.path.insert(0, FOLDER.name)

import harness  # noqa: E402

ORACLE = {
    "ties": [["head", "embed"]],
    "source": {"tensors": {"embed": {}, "packed": {"keys": ["one", "two"]}}},
    "derived": {"freq": {"values": [1.0, "nan"], "ulp_max": 2}},
}
FINDING = {
    "property": "loading.equals_source",
    "kind": "differs",
    "class": "code",
    "phase": "values",
    "stage": "ready",
    "tensor": "embed",
    "ranks": [1],
    "expected": "at most 1000 bytes",
    "seen": "",
    "message": "embed at `ready` of phase values on rank 1 of 2 differs from the checkpoint: ...",
}
# What the sentences of some kinds have to say.
SENTENCES = {
    "concealed": "keys are missing: head",
    "idle": "nothing is another than at `ready`",
    "untied": "embed does not share memory with head",
    "aliased": "embed shares memory with head",
}


def finding(kind, **fields):
    message = SENTENCES.get(kind, FINDING["message"])
    return FINDING | {"kind": kind, "message": message} | fields


class Plans(unittest.TestCase):
    def made(self, one):
        """The check that a finding's script would have."""
        plan = plan_for(one, ORACLE)
        check = getattr(harness, plan.check)(**plan.arguments, **plan.of_tensor)
        self.assertEqual(check.at_the_end, plan.at_the_end, plan.check)
        return check

    def test_every_kind_has_a_check_that_can_be_made(self):
        for kind in PLANS:
            with self.subTest(kind=kind):
                self.assertIsInstance(self.made(finding(kind)), harness.Check)

    def test_findings_of_other_properties_have_one(self):
        for fields in (
            {"property": "memory.host_peak", "kind": "peak"},
            {"property": "memory.no_page_commit", "kind": "committed"},
            {"property": "fault.every_rank_finishes", "kind": "hang"},
            {"property": "fault.ends_as_stated", "kind": "ended"},
            {"property": "sharding.collectives_in_order", "kind": "order"},
            {"property": "training.optimizer_live", "kind": "not-held"},
            {"property": "loading.descriptors_kept", "kind": "requires_grad"},
            {"property": "sharding.ranks_match_rank0", "kind": "unlike-dtype"},
            {"property": "checkpoint.round_trip", "kind": "absent", "stage": "saved"},
            {"property": "checkpoint.round_trip", "kind": "differs", "stage": "saved"},
            {"property": "loading.derived_buffers", "kind": "differs", "tensor": "freq"},
        ):
            with self.subTest(**fields):
                self.made(finding(**fields))

    def test_what_a_value_is_held_against_decides_the_check(self):
        def against(words, **fields):
            return plan_for(
                finding("differs", message=f"embed differs from {words}: x", **fields), ORACLE
            )

        self.assertEqual(against("the checkpoint", tensor="head").check, "SameAsCheckpoint")
        self.assertEqual(
            against("the checkpoint", tensor="head").of_tensor, {"keys": {"head": "embed"}}
        )
        self.assertEqual(against("the plain path").reference, ("plain", "ready"))
        self.assertEqual(against("rank 0").reference, ("values", "ready"))
        earlier = against("its value at `saved@2.optimizer`", stage="restored@2.optimizer")
        self.assertEqual(
            earlier.arguments, {"reference": ("values", "saved@2.optimizer"), "own_rank": True}
        )

    def test_what_no_script_can_show_says_why(self):
        for fields, why in (
            ({"class": "verifier"}, "about the evidence"),
            ({"class": "input"}, "about the files"),
            ({"property": "fault.nothing_leaks", "kind": "leak"}, "shardproof replay"),
            ({"property": "conformance.claims_shown"}, "says of itself"),
            ({"kind": "some-new-kind"}, "some-new-kind"),
            ({"tensor": "packed"}, "under other keys"),
            ({"message": "differs from what it dreams"}, "torch alone"),
        ):
            with self.subTest(**fields), self.assertRaisesRegex(NotShown, why):
                plan_for(FINDING | fields, ORACLE)

    def test_what_two_findings_say_of_their_tensors_is_joined(self):
        plan = Plan("MemoryShared", of_tensor={"shared": {"a": "b"}})
        plan.join(Plan("MemoryShared", of_tensor={"shared": {"c": "d"}}))
        self.assertEqual(plan.of_tensor, {"shared": {"a": "b", "c": "d"}})


if __name__ == "__main__":
    unittest.main()
