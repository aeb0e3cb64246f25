"""Renders pages: each is one HTML file that needs no network; its only script draws charts and sorts tables."""

import base64
import hashlib

from halfway.curriculum.support.extras import clean


def render(template: str, package: str = "halfway.experiments.report", library: str = "", **values: object) -> str:
    """A page as HTML. All values are escaped and readable, unless the template says that one is safe.

    Args:
        template: a file in the package's folder `templates`, which may extend and import those of this package.
        library: JavaScript that the page's own script calls.
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
    """What a page shows of a template's value; what is marked as safe stays."""
    return readable(value) if type(value) is str else value


def readable(text: str) -> str:
    """A text with its lines, and without any other character that does not print."""
    return "\n".join(clean(line.replace("\t", "    ")) for line in text.split("\n"))
