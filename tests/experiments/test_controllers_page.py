"""The page about the controllers is made from the registry, and is up to date."""

from paths import REPOSITORY
from typer.testing import CliRunner

from halfway.controllers import CONTROLLERS
from halfway.experiments.cli import app


def test_the_page_is_up_to_date_and_names_every_controller() -> None:
    printed = CliRunner().invoke(app, ["list", "--markdown"]).stdout
    assert (REPOSITORY / "controllers" / "README.md").read_text() == printed, (
        "run `halfway list --markdown > controllers/README.md`"
    )
    rows = [line for line in printed.splitlines() if line.startswith("| [`")]
    assert [row.split("`")[1] for row in rows] == CONTROLLERS.names()
    [greso] = [row for row in rows if "[`greso`]" in row]
    assert (
        "2506.02177" in greso and "streaks" in greso and "`target=0.25`" in greso and greso.endswith("| all others |")
    )
