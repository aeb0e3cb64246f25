"""What `halfway validate` checks of a study beyond the fields of its file. Needs no torch."""

from halfway.curriculum.support.errors import UserError, require
from halfway.experiments.config import paths
from halfway.experiments.propel.config import PropelConfig
from halfway.experiments.running.checks import check_model


def check_study(config: PropelConfig) -> list[str]:
    """Whatever cannot be checked on this machine, one line each. Raises UserError if a model or a file is missing."""
    unchecked: list[str] = []
    for where, options in config.sampled().items():
        try:
            unchecked += check_model(options.model, options.rollouts, elsewhere=False)
        except UserError as error:
            raise UserError(f"{where}.{error}") from None
    for option, value in paths.paths_of(config.domain.part).items():
        exists = paths.find(value).expanduser().exists()
        require(exists, f"domain.{config.domain.name}.{option}", value, "there is no such file; correct the path")
    return list(dict.fromkeys(unchecked))
