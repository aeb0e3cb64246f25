"""The mark of tests that need a sandbox, which are skipped where there is none."""

from contextlib import closing

import pytest

from halfway.curriculum import UserError
from halfway.curriculum.boxes.sandbox import WITHOUT_SANDBOX, Job, Sandbox, SandboxOptions
from halfway.curriculum.support.acceptance import VARIABLE, is_accepted


def _trouble() -> str:
    if is_accepted(WITHOUT_SANDBOX):
        return f"{VARIABLE} says {WITHOUT_SANDBOX}"
    try:
        with closing(Sandbox(SandboxOptions())) as sandbox:
            sandbox.run([Job("def f(): return 1", "f", ("()",))])
    except UserError as error:
        return str(error)
    return ""


TROUBLE = _trouble()
needs_sandbox = pytest.mark.skipif(bool(TROUBLE), reason=TROUBLE or "never")
