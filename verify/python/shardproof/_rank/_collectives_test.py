import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol

from shardproof._rank._collectives import CollectiveRecorder


@pytest.fixture
def happened():
    """What a recorder and its `before` were told."""
    return []


@pytest.fixture(autouse=True)
def recorder(tmp_path, happened):
    """Of a world of this process alone."""
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)

    class Writer:
        def collective(self, **fields):
            happened.append(fields)

    with CollectiveRecorder(Writer(), lambda op: happened.append(f"before {op}")) as recorder:
        yield recorder
    dist.destroy_process_group()


def test_each_is_on_record_in_order_with_what_it_is_about(happened):
    dist.all_reduce(torch.ones(3, dtype=torch.bfloat16))
    dist.broadcast(torch.ones(2, 2), src=0)
    torch.ones(4).sum()
    assert [one for one in happened if isinstance(one, str)] == [
        "before allreduce", "before broadcast",
    ]  # fmt: skip
    first, second = (one for one in happened if isinstance(one, dict))
    assert first == {
        "sequence": 0, "op": "allreduce", "root": -1, "dtype": "bfloat16", "count": 3,
    }  # fmt: skip
    assert (second["sequence"], second["root"], second["count"]) == (1, 0, 4)


def test_before_comes_before_the_record(happened):
    dist.barrier()
    assert happened[0] == "before barrier" and happened[1]["op"] == "barrier"


def test_of_a_scatter_what_one_rank_gets_is_counted(happened):
    out = torch.zeros(3)
    dist.scatter(out, [torch.ones(3)], src=0)
    assert happened[1]["op"] == "scatter" and happened[1]["count"] == 3


def test_what_a_future_calls_is_left_out_on_any_thread(recorder, happened, monkeypatch):
    monkeypatch.setattr(torch._C.Future, "then", torch._C.Future.then)
    recorder.listen()
    done = dist.all_reduce(torch.ones(3), async_op=True).get_future()
    result = done.then(lambda _: dist.all_reduce(torch.ones(2)) or "called").wait()
    assert result == "called"
    dist.all_reduce(torch.ones(4))
    assert [one["count"] for one in happened if isinstance(one, dict)] == [3, 4]


def test_what_is_compiled_stays_compiled(happened):
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    @torch.compile(backend=backend, fullgraph=True)
    def summed(x):
        return funcol.all_reduce(x + 1, "sum", dist.group.WORLD)

    assert summed(torch.ones(2)).tolist() == [2.0, 2.0]
    assert len(graphs) == 1
    assert [one["op"] for one in happened if isinstance(one, dict)] == ["all_reduce"]
