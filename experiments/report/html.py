"""Renders pages: each is one HTML file that has no scripts and needs no network."""

from halfway.curriculum.support.extras import clean


def rendered(template: str, package: str = "halfway.experiments.report", **values: object) -> str:
    """A page as HTML. All values are escaped, unless the template says that one is safe.

    Args:
        template: a file in the package's folder `templates`, which may extend and import those of this package.
        values: the template's variables.
    """
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    loader = ChoiceLoader([PackageLoader(package), PackageLoader("halfway.experiments.report")])
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    environment.filters["clean"] = clean
    return environment.get_template(template).render(values)
