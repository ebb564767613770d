"""Prints the C++ program that shows a failing case: `python program.py CASE.json [PROPERTY ...]`.

It is one fixed text (program.cc.in) with the case in it, and the ids of the properties that are to
judge it; of a case file alone these are all that apply.
"""

import json
import os
import sys
import textwrap

HERE = os.path.dirname(os.path.abspath(__file__))


def program_of(case, properties, title):
    """The text of the program.

    case: the document of a case
    properties: ids; none: all that apply
    title: what is wrong, one line or more
    """
    with open(os.path.join(HERE, "program.cc.in"), encoding="utf-8") as file:
        text = file.read()
    lines = [line for one in title.splitlines() for line in textwrap.wrap(one, 96)]
    comment = "\n// ".join(lines)
    ids = ", ".join(json.dumps(one) for one in properties)
    text = text.replace("@TITLE@", comment).replace("@PROPERTIES@", ids)
    dumped = lambda value: json.dumps(value, ensure_ascii=False)
    fields = ",\n".join(f"  {dumped(key)}: {dumped(value)}" for key, value in case.items())
    return text.replace("@CASE@", f"{{\n{fields}\n}}")


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as case_file:
        document = json.load(case_file)
    sys.stdout.write(program_of(document, sys.argv[2:], document.get("why") or sys.argv[1]))
