"""The round trip of round_trip_tests.py, as tests of Shardproof's pytest plugin. Run by
pytest_plugin.py."""

import pytest
from round_trip_tests import CASES, WORLD, round_trip


@pytest.mark.shardproof(world=WORLD)
@pytest.mark.parametrize("case", range(CASES))
def test_round_trip(case, shardproof):
    round_trip(case, shardproof.rank, shardproof.scratch / "saved")
