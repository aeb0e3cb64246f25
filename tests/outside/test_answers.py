"""Verdicts that public reports call wrong, small and made anew: each answer with a response that passes or fails."""

import pytest

from halfway.curriculum import Problem
from halfway.curriculum.tasks.verifiers.helpers import take_counts
from halfway.curriculum.tasks.verifiers.verify import verify_all

GOES_ON = " So the amounts add up, and what each of the friends has agrees with the story." * 8
BOTH, SYMBOLIC = ("symbolic", "numeric"), ("symbolic",)

# report: verifiers, and answers, each with responses that pass and responses that fail
REPORTS: dict[str, tuple[tuple[str, ...], list[tuple[str, tuple[str, ...], tuple[str, ...]]]]] = {
    "huggingface/Math-Verify#76": (BOTH, [  # two stars become part of the answer
        ("73", ("437 + 2*234 = 905.\n\nConsistent.\n\nFinal Answer: **73**",), ("489 - 73 = 416\n\nAnswer: **416**",)),
    ]),
    "huggingface/Math-Verify#60": (SYMBOLIC, [  # equations of two lines
        ("3x-y+13=0", (r"\boxed{3*x-1*y+13=0}", r"\boxed{y=3x+13}"), (r"\boxed{3x+4y+14=0}",)),
    ]),
    "huggingface/Math-Verify#14": (SYMBOLIC, [  # tiny numbers, names before "=", lists, signs, times
        (r"\frac{1}{2004!}", (r"\boxed{\frac{1}{2004!}}",), (r"\boxed{\frac{1}{2006!}}",)),
        ("n=2, 3, 4", (r"\boxed{n=2, 3, 4}",), (r"\boxed{n=1, 2, 3}",)),
        ("D = (0, 1)", (r"\boxed{D = (0,1)}",), (r"\boxed{D = (0, 1.5)}",)),
        (r"19, 46, \text{ and } 82", (r"\boxed{19, 46, 82}",), (r"\boxed{21, 36, and 82}",)),
        (r"\frac{2^{2005}+1}{3 \cdot 2^{2006}}", (), (r"\boxed{\frac{1}{3 \cdot 2^{2006}}}",)),
        (r"\pm 2021", (r"\boxed{\pm 2021}",), (r"\boxed{2021}",)),
        ("12:00", (r"\boxed{12:00}",), (r"\boxed{1:00}",)),
        (r"1, 2, \ldots, n", (r"\boxed{1,2,\dots,n}",), (r"\boxed{1, 3, 5, \ldots, 2n-1}",)),
        (r"1:2:3:\ldots", (r"\boxed{1:2:3:\ldots}",), (r"\boxed{1:4:9:\ldots}",)),
    ]),
    "huggingface/Math-Verify#82": (SYMBOLIC, [  # a number inside a formula that cannot be read
        (r"1 - \frac{1}{\mathrm{e}}", (r"\boxed{1-\frac1e}", r"\boxed{1-e^{-1}}"),
            (r"\boxed{1 + \frac{1}{\mathrm{e}}}", r"\boxed{1}")),
    ]),
    "huggingface/Math-Verify#41": (SYMBOLIC, [  # a root in round brackets
        ("4", (), (r"\boxed{4\sqrt(2)}",)),
        (r"4\sqrt{2}", (r"\boxed{4\sqrt(2)}",), (r"\boxed{4}",)),
    ]),
    "huggingface/Math-Verify#56": (SYMBOLIC, [  # LaTeX without delimiters
        (r"\left( 3, \frac{\pi}{2} \right)", (r"(3, \frac{\pi}{2})", r"The answer is (3, \frac{\pi}{2})"),
            (r"(3, \frac{2\pi}{3})",)),
    ]),
    "huggingface/Math-Verify#29": (SYMBOLIC, [(r"\sqrt{17}", (r"\sqrt{17}",), (r"\sqrt{7}",))]),
    "huggingface/Math-Verify#74": (SYMBOLIC, [(r"1 - \sqrt{2}", (r"1 - \sqrt{2}",), ("1",))]),
    "huggingface/Math-Verify#39": (SYMBOLIC, [
        (r"\frac{\sqrt{3}}{3}", ("The answer is sqrt(3)/3",), ("The answer is sqrt(3)",)),
    ]),
    "allenai/open-instruct#1530": (BOTH, [  # signs
        ("-3", ("The answer is -3.",), ("The answer is 3.", "#### 3")),
        ("3", (r"\boxed{+3}",), ("#### -3",)),
        ("-1234.5", (r"\boxed{-1,234.5}",), (r"\boxed{1,234.5}",)),
    ]),
    "verl-project/verl#7274": (BOTH, [  # an answer after which a response goes on
        ("42", (f"2+40=42\n#### 42\n{GOES_ON}",), (f"2+40=42\n#### 41\n{GOES_ON}",)),
    ]),
    "THUDM/slime#1246": (BOTH, [(r"\boxed{5}", (r"so \boxed{5}",), (r"so \boxed{6}",))]),  # boxes on both sides
    "NVIDIA-NeMo/Skills#1526": (SYMBOLIC, [  # an option below a box that holds a formula
        ("D", (r"The ratio is \boxed{\langle H\rangle \ll \Delta E}." + "\n\n**Answer: D**",),
            (r"It is \boxed{\langle D\rangle}." + "\n\nAnswer: E",)),
    ]),
    "EleutherAI/lm-evaluation-harness#2552": (BOTH, [  # a box in displayed mathematics
        ("42", (r"Thus \[ \boxed{42} \]",), (r"\[ 42 \] \[ \boxed{4} \]",)),
    ]),
    "bojieli/ai-agent-book#338": (BOTH, [("3", (r"\boxed{\frac{6}{2}}",), ()), ("62", (), (r"\boxed{\frac{6}{2}}",))]),
    "huggingface/Math-Verify#10": (SYMBOLIC, [  # an interval as a chain of inequalities
        ("0 < x < 12.5", (r"\boxed{(0, 12.5)}", r"\boxed{12.5 > x > 0}"),
            (r"\boxed{[0, 12.5)}", r"\boxed{0 < x < 12}")),
    ]),
    "jundot/omlx#3484": (BOTH, [  # a comma after the number
        ("72", ("The total is 72 clips, altogether.",), ("The total is 71 clips, altogether.",)),
    ]),
    "open-compass/opencompass#2647": (BOTH, [  # thousands in a box
        ("8000", (r"\boxed{8,000}", r"\boxed{8{,}000}"), (r"\boxed{8}",)),
        ("0", (), (r"\boxed{8,000}",)),
    ]),
    "EleutherAI/lm-evaluation-harness#3214": (BOTH, [
        ("29", ("The total cost of the order is $29.00.",), ("The total cost of the order is $29.50.",)),
    ]),
    "PrimeIntellect-ai/verifiers#1336": (BOTH, [  # an earlier answer that the response takes back
        ("10", ("I think the answer: 5 is wrong, since 5 + 5 is more.\nAnswer: 10",), ()),
        ("5", (), ("I think the answer: 5 is wrong, since 5 + 5 is more.\nAnswer: 10",)),
    ]),
    "modelscope/evalscope#906": (BOTH, [("460", (r"\boxed{\text{460}}",), (r"\boxed{\text{46}}",))]),
    "EleutherAI/lm-evaluation-harness#2278": (BOTH, [  # all numbers of a calculation, of which the last is the sum
        ("694", ("The donuts cost 3 * $68 = $204.\n\nThe total cost is $204 + $160 + $330 = $694.",),
            ("The donuts cost 3 * $68 = $694.\n\nThe total cost is $204 + $160 + $330 = $684.",)),
    ]),
    "antirez/ds4#319": (BOTH, [  # a line that shows its sum
        ("293", ("Answer: m+n = 256+37 = 293",), ("Answer: m+n = 293+37 = 330",)),
        ("82", ("Final answer: 082",), ("Final answer: 820",)),
    ]),
    "NVIDIA-NeMo/Gym#1790": (SYMBOLIC, [  # an option as text, or with its content
        ("E", (r"\boxed{\text{E}}", r"\boxed{E: A risk score}", r"\boxed{\text{E: A risk score}}"),
            (r"\boxed{\text{C: A risk score}}", r"\boxed{C: not E}")),
    ]),
    "THUDM/slime#2150": (BOTH, [("42", (r"\fbox{42}",), (r"\fbox{24}",))]),  # OpenRLHF/OpenRLHF#1285
    "marin-community/marin#9163": (BOTH, [  # a last box that is empty or cut off
        ("42", (), (r"First \boxed{42}. Then \boxed{", r"First \boxed{42}. Then \boxed{}.")),
    ]),
    "thinking-machines-lab/tinker-cookbook#895": (BOTH, [  # the first of two boxes is read
        ("7", (r"First \boxed{5}. That is wrong; the answer is \boxed{7}.",), ()),
        ("5", (), (r"First \boxed{5}. That is wrong; the answer is \boxed{7}.",)),
    ]),
    "huggingface/Math-Verify#71": (SYMBOLIC, [  # an inequality as an interval
        ("x<3", (r"\boxed{(-\infty, 3)}", r"\boxed{3>x}"), (r"\boxed{(-\infty, 3]}", r"\boxed{x>3}")),
    ]),
}  # fmt: skip


@pytest.mark.parametrize("report", REPORTS)
def test_a_reported_answer_gets_the_right_verdict(report: str) -> None:
    verifiers, answers = REPORTS[report]
    cases = [
        (Problem("p", "?", answer, "test", verifier), response, right)
        for verifier in verifiers
        for answer, passing, failing in answers
        for responses, right in ((passing, True), (failing, False))
        for response in responses
    ]
    problems, responses, wanted = zip(*cases, strict=True)
    wrong = [
        (problem.verifier, problem.answer, response)
        for problem, response, right, found in zip(
            problems, responses, wanted, verify_all(problems, responses), strict=True
        )
        if found is not right
    ]
    assert not wrong


def test_a_tower_of_powers_fails_in_time_and_is_counted() -> None:
    """math-verify would compute it for as long as it may."""
    take_counts()
    problems = [Problem("p", "?", answer, "test", "symbolic") for answer in ("-288", "x+1")]
    assert verify_all(problems, [r"\boxed{9^{9^{9^9}}}"] * 2) == [False] * 2
    assert take_counts() == {"time": 2}
