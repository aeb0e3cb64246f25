"""Let this environment see another one's packages, behind its own.

.venv-hosts/trl/bin/python constraints/hosts/over.py .venv
"""

import sys
import sysconfig
from pathlib import Path


def main(environment: Path) -> None:
    own = Path(sysconfig.get_paths()["purelib"])
    other = environment / own.relative_to(sys.prefix)
    assert other.is_dir(), f"{other}: no such folder"
    # `addsitedir` reads the other one's own .pth files too, such as that of an editable Halfway.
    (own / "zz_over.pth").write_text(f"import site; site.addsitedir({str(other)!r})\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
