"""The recipes by name, and the command that runs each."""

from functools import cache

from paths import REPOSITORY

from halfway.experiments.config import yaml_files

FOLDER = REPOSITORY / "experiments" / "recipes"
FILES = {str(path.relative_to(FOLDER).with_suffix("")): path for path in sorted(FOLDER.rglob("*.yaml"))}


@cache
def recipe_command(name: str) -> str:
    """The command for a file: it depends on what the file describes, and on whether its machines are several."""
    raw = yaml_files.read(FILES[name])
    cluster = raw.get("cluster", {})
    several = cluster.get("train_nodes", 1) + cluster.get("rollout_nodes", 0) > 1
    if yaml_files.is_study(raw):
        return "propel all"
    return "compare" if "arms" in raw else "launch" if several else "run"
