"""The commands and blocks of code that README and docs show, and which of them no test runs, with the reason."""

import re

from paths import REPOSITORY

FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
INDENTED = re.compile(r"(?<=\n\n)((?: {4}.*\n|\n(?= {4}))+)")
PAGES = {
    path.relative_to(REPOSITORY).as_posix(): path.read_text()
    for path in [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
}

# How a line begins -> why it is not run.
NOT_RUN = {
    "pip ": "asks a registry; tests/test_packaging.py installs the wheel",
    "git clone": "asks a server",
    "make ": "what continuous integration runs",
    "source ": "the tests are in an environment already",
    "export ": "sets a variable of the shell",
    "(umask": "writes to the home folder",
    "apt-get ": "installs a package of the system",
    "debootstrap ": "makes an image, as root",
    "chroot ": "makes an image, as root",
    "tar ": "makes an image, as root",
    "python -m verl": "tests/trainers/hosts/test_verl.py",
    "halfway prove": "takes 25 minutes; tests/experiments/test_proving.py",
    "halfway doctor": "finds what this machine lacks; tests/experiments/test_proving.py",
    "halfway launch FILE": "needs hosts; tests/experiments/running/test_hardware.py",
    "SBATCH_ACCOUNT=me halfway launch FILE": "needs Slurm; tests/experiments/running/test_schedulers.py",
    "halfway compare FILE": "needs a scheduler; tests/experiments/running/test_schedulers.py",
    "halfway compare experiments/recipes/cluster/": "needs a GPU; tests/experiments/test_recipes.py",
    "halfway propel ": "takes minutes; tests/experiments/propel/test_propel_study.py",
    "halfway validate --rows": "needs archives; tests/experiments/running/test_task_checks.py",
    "halfway survey": "tests/experiments/test_survey.py",
}
# Page -> the test that runs its blocks that are not commands, or why none does.
CODE = {
    "README.md": "tests/trainers/hosts/test_pages.py",
    "docs/audit.md": "tests/experiments/audit/test_formats.py",
    "docs/choose.md": "tests/test_choose_page.py",
    "docs/cluster.md": "printed by `halfway prove`, the file of another launcher, and data from a hub",
    "docs/coming_from.md": "tests/test_choose_page.py",
    "docs/concepts.md": "tests/test_choose_page.py",
    "docs/hosts/README.md": "tests/test_examples.py",
    "docs/hosts/others.md": "tests/trainers/hosts/test_pages.py",
    "docs/hosts/prime_rl.md": "tests/trainers/hosts/test_prime_rl.py",
    "docs/hosts/tinker.md": "tests/trainers/hosts/test_pages.py",
    "docs/hosts/trinity.md": "tests/trainers/hosts/test_pages.py",
    "docs/hosts/trl.md": "tests/trainers/hosts/test_pages.py",
    "docs/repositories.md": "needs sandboxes and archives; tests/curriculum/repositories",
    "docs/training.md": "tests/test_examples.py",
    "docs/tutorials/audit_your_log.md": "tests/test_shown_commands.py",
    "docs/tutorials/first_comparison.md": "tests/test_shown_commands.py",
    "docs/tutorials/own_controller.md": "tests/controllers/test_third_party.py",
    "docs/tutorials/own_data.md": "tests/test_shown_commands.py",
    "docs/tutorials/trl.md": "tests/trainers/hosts/test_pages.py",
    "docs/tutorials/verl.md": "tests/trainers/hosts/test_pages.py",
}
COMMAND = re.compile(r"(?!ok )(?:[a-z(][\w.-]*|[A-Z_]+=\S+) (?![=:|])")


def lines(text: str) -> list[str]:
    """The lines of the indented blocks of a page, without what follows `#`; continued ones are one."""
    blocks = "\n".join(INDENTED.findall(FENCED.sub("", text))).replace("\\\n", " ")
    return [line for each in blocks.splitlines() if (line := re.split(r"\s+# ", each[4:].rstrip())[0])]


def commands(page: str) -> list[str]:
    return [line for line in lines(PAGES[page]) if COMMAND.match(line) and "chain = " not in line]


def reason(line: str) -> str:
    """Why a line is not run; empty if it is."""
    return next((why for beginning, why in NOT_RUN.items() if f"{line} ".startswith(beginning)), "")
