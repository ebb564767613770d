"""What every file of this repository must be like: one module a rule, `check(tree)` in each.

<rule>_test.py tries it on trees that it makes up: one that breaks the rule must be found, one that
keeps it must not.
"""
