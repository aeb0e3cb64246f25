"""Runs other auditing tools of 2026 beside `halfway audit` on the same logs.

One finished run of Halfway is written in three forms: as verl's dump of rollouts, but in a single file, since some
tools take no folder; as groups of rewards, `{prompt_id, step, rewards}`; and as scalars by step under TRL's names.
Every tool is given each form.

    python -m venv RIVALS; RIVALS/bin/pip install rldoctor==0.2.0 rlvr-audit==0.1.0 rlprobe==0.1.0
    python -m halfway.experiments.studies.audit_rivals runs/contest_hard/grpo/seed-0 --rivals RIVALS/bin

Prints each tool's exit status and first finding, and writes everything that the tools print to files.
"""

import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from halfway.curriculum.decision_log import GroupRecord
from halfway.curriculum.support.atomic import write_text
from halfway.experiments.report.records import Run, load_run_records
from halfway.experiments.scripts import script, script_parser

TOOLS: Mapping[str, tuple[str, ...]] = {
    "rldoctor": ("rldoctor", "diagnose"),
    "rlvr-audit": ("rlvr-audit", "inspect", "--file"),
    "rlprobe": ("rlprobe", "doctor"),
}
OURS = ("-P", "-m", "halfway.experiments.cli", "audit")
TIMEOUT = 300
SHOWN = 160
ERROR = re.compile(r"\w*[Ee]rror\b|could not")
FINDING = re.compile(r"^(?!.*\d\.\d\.\d)(?!.*\.jsonl)(?=.*[a-z]{4}).*\d")


@dataclass(frozen=True, slots=True)
class Said:
    """A tool's exit status and output for one log."""

    tool: str
    log: str
    status: int
    output: str

    @property
    def words(self) -> str:
        """The tool's last line with an error if it failed; else its first line with a number other than a version."""
        lines = [" ".join(line.split()) for line in plain(self.output).splitlines() if re.search(r"\w", line)]
        if self.status:
            telling = [line for line in lines if ERROR.search(line)][-1:]
        else:
            telling = [line for line in lines if FINDING.search(line)]
        return (telling or lines[-1:] or [""])[0][:SHOWN]


def plain(text: str) -> str:
    """The text without the escape sequences that set colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def write_verl(groups: Sequence[GroupRecord], path: Path) -> Path:
    """Write the rollouts as verl dumps them. Texts are made up; everything that an audit counts is the run's own."""
    rows = (
        {
            "input": f"<|im_start|>user\n{group.problem}<|im_end|>\n<|im_start|>assistant\n",
            "output": f"attempt {i} in step {group.step}",
            "gts": group.problem[-4:],
            "score": float(i < (group.k or 0)),
            "step": group.step + 1,
            "acc": i < (group.k or 0),
        }
        for group in groups
        for i in range(group.size)
    )
    return _write_lines(path, rows)


def write_groups(groups: Sequence[GroupRecord], path: Path) -> Path:
    """Write one line per group, with its problem, step and rewards."""
    rows = [
        {"prompt_id": group.problem, "step": group.step, "rewards": [1.0] * (group.k or 0) + [0.0] * _failed(group)}
        for group in groups
    ]
    return _write_lines(path, rows)


def write_scalars(run: Run, path: Path) -> Path:
    """Write one line per step, with scalars under the names that TRL logs."""
    groups: defaultdict[int, list[GroupRecord]] = defaultdict(list)
    for group in run.groups:
        groups[group.step].append(group)
    rows = []
    for step in run.steps:
        rates = [(group.k or 0) / group.size for group in groups[step.step] if group.size]
        spread = [(rate * (1 - rate)) ** 0.5 for rate in rates]
        rows.append(
            {
                "step": step.step + 1,
                "reward": sum(rates) / max(len(rates), 1),
                "reward_std": sum(spread) / max(len(spread), 1),
                "frac_reward_zero_std": sum(group.degenerate for group in groups[step.step]) / max(len(rates), 1),
                "entropy": step.learner.get("entropy"),
                "grad_norm": step.learner.get("grad_norm"),
                "kl": step.learner.get("approx_kl"),
                "loss": step.learner.get("loss"),
                "num_tokens": step.tokens,
            }
        )
    return _write_lines(path, rows)


def _failed(group: GroupRecord) -> int:
    return group.size - (group.k or 0)


def _write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    write_text(path, "".join(json.dumps(row) + "\n" for row in rows))
    return path


def said(tool: str, command: Sequence[str], log: Path) -> Said:
    """Run a tool on a log, as in a terminal of 120 columns without colours."""
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "120", "TERM": "dumb"}
    done = subprocess.run(
        [*command, str(log)], capture_output=True, text=True, timeout=TIMEOUT, env=environment, check=False
    )
    return Said(tool, log.stem, done.returncode, done.stdout + done.stderr)


@script
def main() -> None:
    """Write the logs, run every tool on each, and print the table."""
    parser = script_parser(__doc__)
    parser.add_argument("run", type=Path, help="directory of a finished run with fresh groups only, such as GRPO's")
    parser.add_argument("--rivals", type=Path, required=True, help="folder of the other tools' commands")
    parser.add_argument("--out", type=Path, default=Path("runs/audit_rivals"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    run = load_run_records(options.run)
    logs = (
        write_verl(run.groups, options.out / "verl_dump.jsonl"),
        write_groups(run.groups, options.out / "groups.jsonl"),
        write_scalars(run, options.out / "scalars.jsonl"),
    )
    commands = {name: [str(options.rivals / words[0]), *words[1:]] for name, words in TOOLS.items()}
    commands["halfway audit"] = [sys.executable, *OURS]
    print("| tool | log | exit status | its first finding, or error |")
    print("|---|---|---:|---|")
    for tool, command in commands.items():
        for log in logs:
            found = said(tool, command, log)
            write_text(options.out / f"{tool.replace(' ', '_')}-{found.log}.txt", plain(found.output))
            print(f"| {tool} | {found.log} | {found.status} | {found.words.replace('|', '/')} |", flush=True)
    print(f"\nall that they print: {options.out}")


if __name__ == "__main__":
    main()
