"""The job of this process: which thread is observed, and that what fails in it stays here."""

import threading
import warnings

import pytest
import torch
from torch import nn

from shardproof._attached import _attach, _attached_options


@pytest.fixture
def attached(tmp_path, monkeypatch):
    """A Job that watches no memory."""
    monkeypatch.setattr(_attach.Job, "watch_memory", lambda self: None)
    return lambda **more: _attach.Job(_attached_options.Options(folder=str(tmp_path), **more))


def in_a_thread(function, *arguments):
    thread = threading.Thread(target=function, args=arguments, name="loader")
    thread.start()
    thread.join()


def test_the_job_is_in_the_thread_that_trains_and_not_in_one_that_loads(attached, capsys):
    one, model = attached(), nn.Linear(2, 2)
    in_a_thread(one.loaded, model)
    in_a_thread(one.saved, {"w": torch.ones(1)})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    one.wrapped([model], None)
    one.made(optimizer)
    assert [root.module for root in one._followed._roots] == [model]
    assert capsys.readouterr().err == ""
    in_a_thread(one.saved, {"w": torch.ones(1)})  # as a save in the background does
    assert capsys.readouterr().err == ""
    for _ in range(2):
        in_a_thread(one.wrapped, [nn.Linear(1, 1)], None)
    assert len(one._followed._roots) == 1
    assert capsys.readouterr().err.count("what the thread loader loads or trains") == 1


def test_a_warning_that_was_shown_once_does_not_come_again(attached):
    one, model = attached(), nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    one.wrapped([model], None)
    one.made(optimizer)
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("default")
        for step in range(4):
            warnings.warn("of the job", stacklevel=1)
            one.before_step(optimizer)
            optimizer.step()
            one.after_step(optimizer)
            one.saved({"step": torch.tensor(step)})
    assert len(shown) == 2  # before the first step, which is observed, and after it


def test_a_change_to_a_module_that_fails_ends_our_part_alone(attached, capsys):
    def change(told, module):
        raise AttributeError("a new release has no such class")

    one = attached()
    one.change(change, torch)
    one.wrapped([nn.Linear(1, 1)], None)
    assert one._followed is None
    assert "goes on unobserved" in capsys.readouterr().err
    with pytest.raises(AttributeError):
        attached(strict=True).change(change, torch)
