"""What a subject's file declares, read without running it: `python -I _declare.py FILE`.

Prints {"cannot": {capability: reason}}. Exit code 2 and one line on stderr if the file is no subject.
"""

import ast
import json
import sys


class NoSubject(Exception):
    pass


def declare(path: str) -> dict:
    try:
        with open(path, encoding="utf-8") as file:
            tree = ast.parse(file.read(), path)
    except SyntaxError as error:
        raise NoSubject(f"{path}:{error.lineno}: not Python: {error.msg}") from error
    except (OSError, ValueError) as error:
        raise NoSubject(f"{path}: cannot be read: {error}") from error
    cannot = {}
    has_run = False
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "run":
            has_run = True
            names = [argument.arg for argument in node.args.args]
            if len(names) < 2:
                raise NoSubject(
                    f"{path}:{node.lineno}: run takes ({', '.join(names)}): expected "
                    "def run(case, observe)"
                )
        if isinstance(node, ast.Assign) and _is_cannot(node.targets):
            cannot = _reasons(path, node)
        if isinstance(node, ast.ImportFrom | ast.Import) and _names_run(node):
            has_run = True
    if not has_run:
        raise NoSubject(f"{path}: has no def run(case, observe)")
    return {"cannot": cannot}


def _is_cannot(targets) -> bool:
    return any(isinstance(target, ast.Name) and target.id == "CANNOT" for target in targets)


def _names_run(node) -> bool:
    return any((alias.asname or alias.name) == "run" for alias in node.names)


def _reasons(path, node) -> dict:
    try:
        value = ast.literal_eval(node.value)
    except ValueError:
        value = None
    if not isinstance(value, dict) or not all(
        isinstance(part, str) and part for pair in value.items() for part in pair
    ):
        raise NoSubject(
            f"{path}:{node.lineno}: CANNOT: expected a literal dict of capability and reason, "
            'such as {"plain": "it has one way of loading"}'
        )
    return value


if __name__ == "__main__":
    try:
        print(json.dumps(declare(sys.argv[1])))
    except NoSubject as error:
        print(error, file=sys.stderr)
        sys.exit(2)
