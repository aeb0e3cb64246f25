"""The last line of a run of the tests names what was skipped and what would run it."""

from skipped import skipped_line


def test_reasons_are_counted_by_their_remedy() -> None:
    reasons = ["Skipped: vLLM is not installed (extra vllm)", "Skipped: DeepSpeed is not installed (extra deepspeed)"]
    reasons += ["Skipped: could not import 'trinity': No module named 'trinity'", "Skipped: could not import 'trl': no"]
    assert skipped_line([*reasons, "Skipped: needs /dev/full"]) == (
        "skipped: 2 need `make test-engines`; 1 need `make test-hosts`; 1 need the package trl; 1 (needs /dev/full)"
    )


def test_nothing_is_said_if_nothing_was_skipped() -> None:
    assert skipped_line([]) == ""
