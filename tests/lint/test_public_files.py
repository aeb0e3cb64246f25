"""Files that public hosts read are what their schemas ask for."""

import subprocess
import sys

import pytest
from paths import REPOSITORY

FILES = {
    "github-workflows": [".github/workflows/tests.yml"],
    "github-issue-forms": [".github/ISSUE_TEMPLATE/fault.yml", ".github/ISSUE_TEMPLATE/method.yml"],
    "github-issue-config": [".github/ISSUE_TEMPLATE/config.yml"],
    "citation-file-format": ["CITATION.cff"],
}


@pytest.mark.parametrize("schema", FILES)
def test_files_for_public_hosts_fit_their_schemas(schema: str) -> None:
    words = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *FILES[schema]]
    done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
