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
    "expected": "",
    "seen": "",
    "message": "embed differs",
    "against": {"what": "checkpoint"},
}
# The fields that findings of some kinds, or of some properties, have besides.
FIELDS = {
    "concealed": {"keys": "missing"},
    "invented": {"keys": "unexpected"},
    "idle": {"against": {"what": "earlier", "stage": "ready"}},
    "returned": {"against": {"what": "earlier", "stage": "ready"}},
    "untied": {"other": "head"},
    "aliased": {"other": "head"},
    "peak": {"limit_bytes": 1000},
}


def finding(kind, **fields):
    return FINDING | {"kind": kind} | FIELDS.get(kind, {}) | fields


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
        def against(said, **fields):
            return plan_for(finding("differs", against=said, **fields), ORACLE)

        of_checkpoint = against({"what": "checkpoint"}, tensor="head")
        self.assertEqual(of_checkpoint.check, "SameAsCheckpoint")
        self.assertEqual(of_checkpoint.of_tensor, {"keys": {"head": "embed"}})
        plain = against({"what": "plain", "phase": "plain", "stage": "ready"})
        self.assertEqual(plain.reference, ("plain", "ready"))
        rank = against({"what": "rank", "rank": 0})
        self.assertEqual(rank.reference, ("values", "ready"))
        earlier = against(
            {"what": "earlier", "stage": "saved@2.optimizer"}, stage="restored@2.optimizer"
        )
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
            ({"against": {"what": "formula"}}, "torch alone"),
            ({"kind": "untied"}, "shares memory"),
        ):
            with self.subTest(**fields), self.assertRaisesRegex(NotShown, why):
                plan_for(FINDING | fields, ORACLE)

    def test_what_two_findings_say_of_their_tensors_is_joined(self):
        plan = Plan("MemoryShared", of_tensor={"shared": {"a": "b"}})
        plan.join(Plan("MemoryShared", of_tensor={"shared": {"c": "d"}}))
        self.assertEqual(plan.of_tensor, {"shared": {"a": "b", "c": "d"}})


if __name__ == "__main__":
    unittest.main()
