"""One effect from several regimes, which may truly differ: a random-effects meta-analysis of a few estimates."""

from collections.abc import Sequence

import numpy as np

from halfway.experiments.report.statistics.crossed import CrossedMean


def over_regimes(effects: Sequence[CrossedMean]) -> CrossedMean:
    """The mean effect over regimes, with an error that counts how much they differ.

    The variance between regimes is Paule and Mandel's (1982), the error Hartung and Knapp's (2001) with one degree of
    freedom less than there are regimes, but never less than the error without their factor. A single regime's effect is
    returned as it is.

    Args:
        effects: one per regime, each with a standard error above 0.
    """
    from statsmodels.stats.meta_analysis import combine_effects

    if len(effects) == 1:
        return effects[0]
    means = np.array([effect.mean for effect in effects])
    errors = np.array([effect.stderr for effect in effects], np.float64)
    assert (errors > 0).all(), "every regime's effect needs an error"
    found = combine_effects(means, errors**2, method_re="iterated")
    stderr = max(float(found.sd_eff_w_re), float(found.sd_eff_w_re_hksj))
    return CrossedMean(float(found.mean_effect_re), stderr, len(effects) - 1, tuple(means.tolist()))
