"""Micro-repositories: real files with real tests, small enough for a tiny policy to fix.

- `repositories`: three short functions in two modules, drawn from a grammar; their files and their mutants
- `testing`: their tests, run in the sandbox
- `episodes`: how a policy fixes one, and its teacher
- `bugs_domain`: bugs in them that a generator writes
- `bug_author`: the flawed author whose habits that generator learns
"""
