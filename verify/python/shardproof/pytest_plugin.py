"""Tests on several ranks for pytest: `@pytest.mark.shardproof(world=2)`. See pytest.md.

Pytest finds this module by its entry point. It imports torch in the ranks only.
"""

import pytest

from ._plugin import _item

_MARK = "shardproof"
_RANK = "shardproof-rank"  # the plugin that a rank's session has (_worker.py)


def pytest_configure(config):
    config.addinivalue_line(
        "markers",
        "shardproof(world=2, backend='gloo', deadline=60): runs the test on this many "
        "ranks, in processes that stay from test to test; deadline in seconds",
    )


def _is_rank(config) -> bool:
    return hasattr(config, "shardproof_rank")


@pytest.fixture
def shardproof(request):
    """This rank: rank, world, scratch, check, equal, observe, poison, barrier."""
    return _job(request, "shardproof").fixture


@pytest.fixture
def reference(request):
    """reference(factory, *args, checkpoint=None): what a plain process makes of a model."""
    from ._plugin._reference import Maker

    return Maker(_job(request, "reference"))


def _job(request, name):
    serving = request.config.pluginmanager.get_plugin(_RANK)
    if serving is None:
        pytest.fail(
            f"the fixture `{name}` works only in tests with @pytest.mark.shardproof(world=...)",
            pytrace=False,
        )
    return serving.job


def pytest_collection_finish(session):
    """The imports begin while other tests run."""
    config = session.config
    if _is_rank(config) or config.option.collectonly:
        return
    if any(item.get_closest_marker(_MARK) for item in session.items):
        _item.pool_of(config).start()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    mark = item.get_closest_marker(_MARK)
    if mark is None or _is_rank(item.config):
        return None
    _item.run(item, nextitem, mark)
    return True


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config):
    _item.close(config)
