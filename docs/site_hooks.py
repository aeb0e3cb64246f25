"""What mkdocs does beside docs/mkdocs.yml: one entry in the navigation and one edit link for each controller's page."""

from pathlib import Path
from typing import Any


def on_config(config: Any) -> Any:
    """Add the pages of all controllers below the page that lists them."""
    [reference] = (part["Reference"] for part in config.nav if "Reference" in part)
    [controllers] = (part["Controllers"] for part in reference if "Controllers" in part)
    names = sorted(path.name for path in Path(config.docs_dir, "controllers").glob("[a-z]*.md"))
    controllers += [{name.removesuffix(".md"): f"controllers/{name}"} for name in names]
    return config


def on_pre_page(page: Any, config: Any, files: Any) -> Any:
    """Let "edit" lead to the file of which a page is made; without a repository no page has the link."""
    if not config.repo_url or page.file.src_uri.startswith("reference/"):
        page.edit_url = None
    elif "source" in page.meta:
        page.edit_url = page.edit_url.replace(page.file.src_uri, page.meta["source"])
    return page
