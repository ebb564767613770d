"""The examples of the pytest plugin pass, and name rank and tensor when a mistake is put in."""

import pathlib
import textwrap

import pytest

from shardproof._plugin._outcomes_plugin_test import run

EXAMPLES = pathlib.Path(__file__).parents[4] / "fixtures" / "examples"
# A conftest.py beside the example, which puts the mistake in; and what must then be told.
MISTAKES = {
    "fsdp2_save": (
        """
        import pytest, torch.distributed as dist, torch.distributed.checkpoint as dcp

        @pytest.fixture(autouse=True)
        def one_element_is_not_read(monkeypatch):
            load = dcp.load

            def wrong(state, **how):
                load(state, **how)
                if dist.is_initialized() and dist.get_rank() == 1:
                    state["2.weight"].to_local()[0, 3] += 1

            monkeypatch.setattr(dcp, "load", wrong)
        """,
        ["2.weight on rank 1: element 263 is"],
    ),
    "lora_merge": (
        """
        import pytest, peft.tuners.lora.layer as lora, torch.distributed as dist

        @pytest.fixture(autouse=True)
        def one_rank_has_another_scale(monkeypatch):
            delta = lora.Linear.get_delta_weight

            def wrong(self, adapter):
                found = delta(self, adapter)
                return found * (2 if dist.get_rank() == 1 and self.out_features == 16 else 1)

            monkeypatch.setattr(lora.Linear, "get_delta_weight", wrong)
        """,
        [
            "0.q_proj.weight on rank 1: element",
            "named *.q_proj.weight",
            "0.v_proj.weight on rank 1",
        ],
    ),
    "resume": (
        """
        import pytest, torch.distributed as dist, torch.distributed.checkpoint as dcp

        @pytest.fixture(autouse=True)
        def a_moment_is_not_restored(monkeypatch):
            load = dcp.load

            def wrong(state, **how):
                load(state, **how)
                if dist.get_rank() == 1:
                    state["optimizer"]["state"]["0.bias"]["exp_avg"].to_local().zero_()

            monkeypatch.setattr(dcp, "load", wrong)
        """,
        ["0.bias on rank 1: element 1", "optimizer.0.bias.exp_avg on rank 1: element 1"],
    ),
}


def run_example(folder, name, conftest):
    """Under the name that `run` gives it."""
    if name == "lora_merge":
        pytest.importorskip("peft")
    source = (EXAMPLES / f"{name}_test.py").read_text()
    assert source == textwrap.dedent(source)
    return run(folder, source, "-rf", conftest=conftest)


@pytest.mark.parametrize("name", MISTAKES)
def test_an_example_passes(tmp_path, name):
    ran = run_example(tmp_path, name, "")
    assert ran.code == 0 and "1 passed in" in ran.text, ran.text


@pytest.mark.parametrize("name", MISTAKES)
def test_an_example_names_a_mistake(tmp_path, name):
    mistake, told = MISTAKES[name]
    ran = run_example(tmp_path, name, mistake)
    assert ran.code == 1 and "1 failed in" in ran.text, ran.text
    for line in told:
        assert line in ran.text, (line, ran.text)
    assert "on rank 0:" not in ran.text and "on ranks" not in ran.text, ran.text
