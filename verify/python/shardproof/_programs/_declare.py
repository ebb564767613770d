"""What a subject's file declares, read without running it: `python -I _declare.py FILE`.

Prints {"cannot": {capability: reason}, "options": {name: [value, ...]},
"shows": {kind: [name, ...]}, "reads": [option=value, ...], "builds": whether it asks for
case.build, "adapts": for case.adapter}. With one of the options of "reads", or always if one of
them is empty, only rank 0 reads the checkpoint. Exit code 2 and one line on stderr if the file is
no subject.
"""

import ast
import json
import os
import sys

_HELPERS = "shardproof.subjects"
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_SHOWABLE = {"placements", "collectives", "files", "stages"}


class NoSubject(Exception):
    pass


def declare(path: str) -> dict:
    """What the file, and the files beside it that it imports, say of it."""
    tree = _parse(path)
    cannot, has_run = {}, False
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "run":
            has_run = True
            names = [argument.arg for argument in node.args.args]
            if len(names) < 2:
                raise NoSubject(
                    f"{path}:{node.lineno}: run takes ({', '.join(names)}): expected "
                    "def run(case, observe)"
                )
        if _assigns(node, "CANNOT"):
            cannot = _reasons(path, node)
        if isinstance(node, ast.ImportFrom | ast.Import) and _names_run(node):
            has_run = True
    if not has_run:
        raise NoSubject(f"{path}: expected def run(case, observe), found none")
    trees = _with_imports(path, tree)
    if not any(_asks_for(tree, "steps") for tree in trees.values()):
        cannot.setdefault("train", "it never reads case.steps, so it takes no steps")
    options = {}
    for name, tree in reversed(trees.items()):
        for node in tree.body:
            if _assigns(node, "OPTIONS"):
                options |= _choices(name, node)
    shows = next((_shown(path, node) for node in tree.body if _assigns(node, "SHOWS")), {})
    asks = {
        key: any(_asks_for(tree, what) for tree in trees.values())
        for key, what in (("builds", "build"), ("adapts", "adapter"))
    }
    for node in tree.body:
        if _assigns(node, "PLAIN"):
            _check_plain(path, node, options)
    reads = next((_reads(path, node) for node in tree.body if _assigns(node, "READS")), [])
    return {"cannot": cannot, "options": options, "shows": shows, "reads": reads, **asks}


def _parse(path) -> ast.Module:
    try:
        with open(path, encoding="utf-8") as file:
            return ast.parse(file.read(), path)
    except SyntaxError as error:
        line = f":{error.lineno}" if error.lineno else ""
        raise NoSubject(f"{path}{line}: not Python: {error.msg}") from error
    except (RecursionError, MemoryError) as error:
        raise NoSubject(f"{path}: nested too deeply to be read") from error
    except (OSError, ValueError) as error:
        raise NoSubject(f"{path}: cannot be read: {error}") from error


def _with_imports(path, tree) -> dict[str, ast.Module]:
    """The file itself first, then the modules that it imports from its own folder, PYTHONPATH or
    shardproof.subjects."""
    folders = [os.path.dirname(os.path.abspath(path)), *os.environ.get("PYTHONPATH", "").split(":")]
    folders.append(os.path.join(_PACKAGE, "subjects"))
    found = {path: tree}
    waiting = [tree]
    while waiting:
        for name in _imported(waiting.pop()):
            places = (os.path.join(folder, f"{name}.py") for folder in folders if folder)
            place = next((place for place in places if os.path.isfile(place)), None)
            if place and place not in found:
                found[place] = _parse(place)
                waiting.append(found[place])
    return found


def _imported(tree) -> list[str]:
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.append(node.module)
            if node.module == _HELPERS:
                names += [f"{_HELPERS}.{alias.name}" for alias in node.names]
    names = [name.removeprefix(f"{_HELPERS}.") for name in names]
    return [name for name in names if "." not in name]


def _asks_for(tree, what) -> bool:
    """Whether case.<what> is anywhere in it."""
    return any(
        isinstance(node, ast.Attribute)
        and node.attr == what
        and isinstance(node.value, ast.Name)
        and node.value.id == "case"
        for node in ast.walk(tree)
    )


def _assigns(node, name) -> bool:
    return isinstance(node, ast.Assign) and any(
        isinstance(target, ast.Name) and target.id == name for target in node.targets
    )


def _names_run(node) -> bool:
    return any((alias.asname or alias.name) == "run" for alias in node.names)


def _literal(node):
    try:
        value = ast.literal_eval(node.value)
        json.dumps(value, ensure_ascii=False).encode()
        return value
    except (
        ValueError,
        TypeError,
        RecursionError,
        MemoryError,
    ):  # UnicodeEncodeError is a ValueError
        return None


def _reasons(path, node) -> dict:
    value = _literal(node)
    if not isinstance(value, dict) or not all(
        isinstance(part, str) and part for pair in value.items() for part in pair
    ):
        raise NoSubject(
            f"{path}:{node.lineno}: CANNOT: expected a literal dict of capability and reason, "
            'such as {"plain": "it has one way of loading"}'
        )
    return value


def _choices(path, node) -> dict:
    value = _literal(node)
    if not _is_lists_of_text(value):
        raise NoSubject(
            f"{path}:{node.lineno}: OPTIONS: expected a literal dict of name and list of values, "
            'the default first, such as {"save": ["dcp", "async"]}'
        )
    return value


def _shown(path, node) -> dict:
    value = _literal(node)
    if not _is_lists_of_text(value) or not value.keys() <= _SHOWABLE:
        raise NoSubject(
            f"{path}:{node.lineno}: SHOWS: expected a literal dict of "
            f"{', '.join(sorted(_SHOWABLE))} "
            'and list of names, such as {"placements": ["shard"]}'
        )
    return value


def _check_plain(path, node, options):
    value = _literal(node)
    if not isinstance(value, dict) or any(
        chosen not in options.get(name, ()) for name, chosen in value.items()
    ):
        raise NoSubject(
            f"{path}:{node.lineno}: PLAIN: expected a literal dict of names from OPTIONS with one "
            'of their values, such as {"efficient": "no"}'
        )


def _reads(path, node) -> list[str]:
    value = _literal(node)
    said = {"": value} if isinstance(value, str) else value
    if not isinstance(said, dict) or any(
        reader != "rank 0" or not isinstance(condition, str) for condition, reader in said.items()
    ):
        raise NoSubject(
            f'{path}:{node.lineno}: READS: expected "rank 0", or a literal dict of options with '
            'which that is so, such as {"load=broadcast": "rank 0"}'
        )
    return list(said)


def _is_lists_of_text(value) -> bool:
    return isinstance(value, dict) and all(
        isinstance(name, str)
        and isinstance(values, list)
        and values
        and all(isinstance(each, str) for each in values)
        for name, values in value.items()
    )


if __name__ == "__main__":
    try:
        print(json.dumps(declare(sys.argv[1])))
    except NoSubject as error:
        print(error, file=sys.stderr)
        sys.exit(2)
