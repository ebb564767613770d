"""Options of a framework, as far as the release at hand has them."""

import inspect


def offered(function, **options):
    """Those of `options` that `function` takes by name.

    For an option that asks for what a release may do by itself or not at all: what then comes out
    is judged, and a release that cannot do it is not told from one that does it wrong.
    """
    taken = inspect.signature(function).parameters
    return {name: value for name, value in options.items() if name in taken}
