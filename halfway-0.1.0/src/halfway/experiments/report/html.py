"""Renders pages. Each is one HTML file that needs no network; its only script draws charts and sorts tables."""

import base64
import hashlib

from halfway.curriculum.support.extras import clean


def render(template: str, package: str = "halfway.experiments.report", library: str = "", **values: object) -> str:
    """Render a page as HTML. All values are escaped and readable, unless the template marks one as safe.

    Args:
        template: a file in the package's folder `templates`, which may extend and import this package's templates.
        library: JavaScript for the page's own script.
        values: the template's variables.
    """
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    loader = ChoiceLoader([PackageLoader(package), PackageLoader("halfway.experiments.report")])
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, finalize=shown)
    environment.filters |= {"clean": clean, "readable": readable}
    script = library + loader.get_source(environment, "page.js")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template(template).render(values, script=script, script_hash=f"sha256-{digest}")


def shown(value: object) -> object:
    """Make a template's value readable, unless it is marked as safe."""
    return readable(value) if type(value) is str else value


def readable(text: str) -> str:
    """Remove unprintable characters from a text, except line ends."""
    return "\n".join(clean(line.replace("\t", "    ")) for line in text.split("\n"))
