"""The tables of a comparison: in the terminal, as Markdown, as HTML cells and as JSON."""
