"""Changes to modules that the job imports later, made as soon as it has imported them.

So the job imports what it wants, in its own order and with its own environment, and what it never
imports is never imported for it.
"""

import sys


class _Loader:
    """Loads as the loader that was found does, then has the change made."""

    def __init__(self, found, change):
        self._found, self._change = found, change

    def __getattr__(self, name):
        return getattr(self._found, name)

    def create_module(self, spec):
        return self._found.create_module(spec)

    def exec_module(self, module):
        # Whoever looks for the source of the module finds the loader that has it.
        module.__loader__ = module.__spec__.loader = self._found
        self._found.exec_module(module)
        self._change(module)


class _Finder:
    def __init__(self):
        self.changes = {}

    def find_spec(self, name, path=None, target=None):
        change = self.changes.get(name)
        if change is None:
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find else None
            if spec is None:
                continue
            if hasattr(spec.loader, "exec_module") and hasattr(spec.loader, "create_module"):
                spec.loader = _Loader(spec.loader, change)
            return spec
        return None


_finder = _Finder()


def when_imported(name: str, change):
    """Calls change(module) once the module is imported: now, if it is. What it raises is raised by
    the import."""
    if name in sys.modules:
        change(sys.modules[name])
        return
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    _finder.changes[name] = change


def replace(original, by):
    """Puts a function in the place of another wherever a module has it by name."""
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", None)
        if not isinstance(names, dict):
            continue
        for name in [name for name, value in list(names.items()) if value is original]:
            names[name] = by
