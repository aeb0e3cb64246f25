"""What a comparison is asked: conditions that are equal for all arms, planned contrasts, costs, targets, strata."""
