"""The files that a Python file imports from beside it."""

import ast
import os

MODULE_BYTES_MAX = 512 << 10


def modules_of(path, folders):
    """What a file imports from these folders, and the rest, by name.

    Returns ({file name: path}, modules that are installed, modules of these folders that have to be
    imported from there: what is no Python, or larger than MODULE_BYTES_MAX).
    """
    files, installed, left, waiting = {}, [], [], [(os.path.basename(path), path)]
    while waiting:
        name, file_path = waiting.pop(0)
        if name in files:
            continue
        files[name] = file_path
        for module in imported_by(file_path):
            found = files_of(module.split(".")[0], folders)
            waiting += found or []
            others = installed if found == [] else left
            if not found and module not in others:
                others.append(module)
    return files, installed, left


def imported_by(path):
    with open(path, encoding="utf-8") as file:
        tree = ast.parse(file.read(), path)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module


def files_of(module, folders):
    """The files of a module: none if it is not in these folders, None if it cannot be copied."""
    for folder in folders:
        single, package = os.path.join(folder, f"{module}.py"), os.path.join(folder, module)
        if os.path.isfile(single):
            return [(f"{module}.py", single)]
        if os.path.isfile(os.path.join(package, "__init__.py")):
            found = [
                os.path.join(root, one)
                for root, _, names in os.walk(package)
                for one in sorted(names)
                if "__pycache__" not in root
            ]
            is_python = all(one.endswith((".py", ".pyi", ".typed")) for one in found)
            if not is_python or sum(map(os.path.getsize, found)) > MODULE_BYTES_MAX:
                return None
            return [(os.path.relpath(one, folder), one) for one in found if one.endswith(".py")]
    return []
