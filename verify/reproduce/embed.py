"""Copies code from one place to another as text: definitions with what they need, and whole modules."""

import ast
import os
import re
import sys

MODULE_BYTES_MAX = 512 << 10


class Source:
    """The top-level definitions of a Python file, and the names that it imports."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            self.lines = file.read().splitlines()
        self.folder = os.path.dirname(os.path.abspath(path))
        self.definitions, self.imports = {}, {}
        for node in ast.parse("\n".join(self.lines), path).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                self.definitions[node.name] = node
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self.definitions[node.targets[0].id] = node
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                self.definitions[node.target.id] = node
            elif isinstance(node, ast.Import | ast.ImportFrom):
                self._remember(node)

    def _remember(self, node):
        for alias in node.names:
            name = alias.asname or alias.name.split(".")[0]
            self.imports.setdefault(name, []).append((node, alias))

    def text(self, node, facts, without=()):
        """The lines of a node without those of some inner ones.

        facts: {text of a condition: whether it holds}; branches that are never taken are left out.
        """
        dead = [inner for inner in ast.walk(node)
                if isinstance(inner, ast.If) and not inner.orelse
                and facts.get(ast.unparse(inner.test)) is False]  # fmt: skip
        dropped = {line for inner in [*dead, *without] for line in _lines_of(inner)}
        lines = [self.lines[i - 1] for i in _lines_of(node) if i not in dropped]
        return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def _lines_of(node):
    first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))])
    return range(first, node.end_lineno + 1)


def members(node):
    """The fields, methods and properties of a class: name -> node."""
    found = {}
    for inner in node.body:
        if isinstance(inner, ast.FunctionDef):
            found[inner.name] = inner
        elif isinstance(inner, ast.AnnAssign):
            found[inner.target.id] = inner
    return found


def attributes_in(text):
    """Every name that some code asks an object for."""
    return {node.attr for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute)}


def class_text(source, name, wanted, facts):
    """A class with only the members that are wanted and those that these need, and their names."""
    node = source.definitions[name]
    known = members(node)
    kept, waiting = set(), [one for one in known if one in wanted]
    while waiting:
        one = waiting.pop()
        if one not in kept:
            kept.add(one)
            text = source.text(known[one], facts)
            waiting += [other for other in known if re.search(rf"\bself\.{other}\b", text)]
    unwanted = [inner for one, inner in known.items() if one not in kept]
    if ast.get_docstring(node):  # it speaks of members that are not there
        unwanted.append(node.body[0])
    return re.sub(r":\n\n", ":\n", source.text(node, facts, unwanted), count=1), kept


class Copy:
    """Definitions of several files in the order in which they were asked for, and their imports."""

    def __init__(self, given, facts):
        self._given = set(given)  # names that are there already
        self._facts = facts
        self._parts = {}
        self._imports = {}  # (module or None, name, as)

    def heading(self, text):
        self._parts[text] = f"# ---- {text} {'-' * (92 - len(text))}\n"

    def add(self, source, name, text=None):
        """A definition (or this text of it), and after it those that it needs."""
        if name in self._parts or (name in self._given and not text):
            return
        text = text or source.text(source.definitions[name], self._facts)
        self._parts[name] = ""  # its place, before what it needs
        for used in _names_in(text):
            if used in source.definitions:
                self.add(source, used)
            for node, alias in source.imports.get(used, []):
                self._add_import(source, node, alias, text)
        self._parts[name] = text

    def _add_import(self, source, node, alias, text):
        if isinstance(node, ast.Import):
            # Of `import a` and `import a.b`, those that are named.
            if alias.asname or re.search(rf"\b{re.escape(alias.name)}\b", text):
                self._imports[(None, alias.name, alias.asname)] = True
        elif node.level:
            inner = Source(os.path.join(source.folder, f"{node.module}.py"))
            self.add(inner, alias.name)
        else:
            self._imports[(node.module, alias.name, alias.asname)] = True

    def text(self):
        """All definitions, those that are needed after those that need them."""
        return "\n\n".join(self._parts.values())

    def import_lines(self):
        """Import statements, the standard library's first."""
        lines, froms = [], {}
        for module, name, asname in self._imports:
            spelled = name + (f" as {asname}" if asname else "")
            if module is None:
                lines.append(f"import {spelled}")
            else:
                froms.setdefault(module, []).append(spelled)
        lines += [f"from {module} import {', '.join(sorted(names))}"
                  for module, names in froms.items()]  # fmt: skip
        own = lambda line: line.split()[1].split(".")[0] in sys.stdlib_module_names
        standard = sorted(filter(own, lines), key=_import_order)
        others = sorted((line for line in lines if not own(line)), key=_import_order)
        return "\n".join(standard) + "\n\n" + "\n".join(others)


def _import_order(line):
    return (line.startswith("from"), line)


def _names_in(text):
    """Names in the order of their first use."""
    names = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)]
    return list(dict.fromkeys(node.id for node in sorted(names, key=lambda n: n.lineno)))


def modules_of(path, folders):
    """What a file imports from these folders, as text, and the rest, by name.

    Returns ({file name: text}, modules that are installed, modules of these folders that have to be
    imported from there: what is no Python, or larger than MODULE_BYTES_MAX).
    """
    files, installed, left, waiting = {}, [], [], [(os.path.basename(path), path)]
    while waiting:
        name, file_path = waiting.pop(0)
        if name in files:
            continue
        with open(file_path, encoding="utf-8") as file:
            files[name] = file.read()
        for module in _imported(files[name], file_path):
            found = _files_of(module.split(".")[0], folders)
            waiting += found or []
            others = installed if found == [] else left
            if not found and module not in others:
                others.append(module)
    return files, installed, left


def _imported(text, path):
    for node in ast.walk(ast.parse(text, path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module


def _files_of(module, folders):
    """The files of a module: none if it is not in these folders, None if it cannot be embedded."""
    for folder in folders:
        single, package = os.path.join(folder, f"{module}.py"), os.path.join(folder, module)
        if os.path.isfile(single):
            return [(f"{module}.py", single)]
        if os.path.isfile(os.path.join(package, "__init__.py")):
            found = [os.path.join(root, one) for root, _, names in os.walk(package)
                     for one in sorted(names) if "__pycache__" not in root]  # fmt: skip
            is_python = all(one.endswith((".py", ".pyi", ".typed")) for one in found)
            if not is_python or sum(map(os.path.getsize, found)) > MODULE_BYTES_MAX:
                return None
            return [(os.path.relpath(one, folder), one) for one in found if one.endswith(".py")]
    return []
