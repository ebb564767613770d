"""What subjects of real frameworks share: how a framework is made to run on a CPU, and how a job
goes through what a case asks for.

Nothing here knows a version, and nothing is imported before a subject asks for it.
"""
