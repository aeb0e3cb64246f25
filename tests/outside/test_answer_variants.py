"""Variants of answers, written from what models write by somebody who had not seen the verifiers."""

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import pytest
from paths import REPOSITORY

from halfway.curriculum import Problem, UserError
from halfway.curriculum.tasks.verifiers.verify import verify

COLUMNS = ("notation", "box", "prose", "wrong", "exploit")
ROW = re.compile(r"\| `(\w+)` \| variants " + r"\| (\d+) " * len(COLUMNS) + r"\|")

NOTATIONS = {  # reference: the same answer, as a model may write it
    "42": ("42", "42.", "42.0", "42.00", "+42", "$42$", r"\(42\)", r"\[42\]", "**42**", r"\mathbf{42}", r"\text{42}"),
    "1250": ("1,250", "1250", r"1{,}250", r"1\,250", "1 250", "$1,250", r"\$1250", r"1.25 \times 10^3", "1.25e3"),
    "1000000": ("1,000,000", "10^6", r"10^{6}", "1e6", r"1{,}000{,}000", "1 000 000"),
    "-12": ("-12", "\u221212", r"{-12}", r"$-12$", "-12.0", r"-\,12", "- 12"),
    "0.75": ("0.75", ".75", "3/4", r"\frac{3}{4}", r"\frac34", r"\dfrac{3}{4}", r"\tfrac{3}{4}", "75%",
        r"75\%", "0.750", "\u00be"),
    "3/4": ("3/4", r"\frac{3}{4}", r"\frac 3 4", "0.75", r"\frac{6}{8}", r"{3}/{4}", r"\cfrac{3}{4}", "6/8"),
    "-1/2": ("-1/2", r"-\frac{1}{2}", r"\frac{-1}{2}", r"\frac{1}{-2}", "-0.5", "-.5", "\u2212\u00bd", "-\u00bd"),
    "7/2": ("7/2", "3.5", r"3\frac{1}{2}", "3 1/2", "3\u00bd", r"\frac{7}{2}"),
    r"\frac{1}{3}": ("1/3", r"0.\overline{3}", r"0.\bar{3}", "\u2153", r"\frac13"),
    r"\sqrt{2}": (r"\sqrt{2}", r"\sqrt2", r"2^{1/2}", r"2^{\frac{1}{2}}", "sqrt(2)", "\u221a2", r"\frac{2}{\sqrt{2}}"),
    r"2\sqrt{3}": (r"2\sqrt{3}", r"\sqrt{12}", r"2 \cdot \sqrt{3}", r"2\times\sqrt3", r"\sqrt{3}\cdot 2", "2\u221a3"),
    r"\frac{\sqrt{3}}{2}": (r"\frac{\sqrt{3}}{2}", r"\sqrt{3}/2", r"\frac{1}{2}\sqrt{3}", r"\sqrt{\frac{3}{4}}"),
    r"2\pi": (r"2\pi", r"2 \pi", r"2\cdot\pi", r"\pi \cdot 2", "2\u03c0", "2 * pi"),
    r"x^2+2x+1": ("x^2+2x+1", "(x+1)^2", "x^{2} + 2x + 1", "1 + 2x + x^2", r"(x+1)(x+1)", "x**2 + 2*x + 1"),
    "(1,2)": ("(1,2)", "(1, 2)", r"\left(1,2\right)", r"(1,\,2)", r"\left( 1, 2 \right)", r"(1.0, 2.0)",
        r"\bigl(1, 2\bigr)"),
    r"\{1,2\}": (r"\{1,2\}", r"\{2,1\}", r"\left\{1, 2\right\}", r"\{ 1, 2 \}"),
    "[0,1)": ("[0,1)", "[0, 1)", r"\left[0,1\right)", r"[0,\,1)"),
    "A": ("A", "(A)", r"\text{A}", r"\textbf{A}", r"\mathrm{A}", "A.", r"\text{(A)}", "**A**", r"\textbf{(A)}"),
    "12": ("12", r"12\text{ cm}", "12 cm", r"12\ \mathrm{cm}", "x = 12", "x=12", r"12^\circ", "$12",
        "12 dollars", r"\textbf{(A) }12"),
    "90": ("90", r"90^\circ", r"90^{\circ}", "90\u00b0", "90 degrees", r"90\text{ degrees}"),
    "5": ("5", r"\boxed{5}", r"\left(5\right)", "(5)", "5/1", r"\frac{10}{2}", r"\sqrt{25}", "05", "5 apples"),
}  # fmt: skip
NEAR = {  # reference: other answers, by the kind of mistake
    "42": ("41", "43", "-42", "4.2", "420", "24", "42.1", "4 2", "142", "422", "0.42", "1/42", "42^2", "42i",
        "4200000"),
    "1250": ("1251", "12500", "125", "1,520", "-1250", "1250.5", "1,250,000", r"1.25 \times 10^4", "1.25e2", "1.250"),
    "1000000": ("10^5", "10^7", "1,000,001", "100,000", "1e5", "-10^6"),
    "348": ("-348", "347", "384", "3.48", "3480", "34.8"),
    "-12": ("12", "-1.2", "-120", "-13", "-21", r"\frac{1}{-12}"),
    "0.75": ("0.74", "0.57", "-0.75", "7.5", "75", "0.075", r"\frac{4}{3}", "0.76"),
    "3/4": ("4/3", "-3/4", "0.34", "3/5", "34", "1/4", r"\frac{3}{-4}", "3, 4"),
    "7/2": ("2/7", "3.05", r"\frac{31}{2}", "-7/2", "72", "3/2"),
    r"\frac{1}{3}": ("0.3", "0.33", "3", "-1/3", r"0.\overline{6}", "0.4"),
    r"\sqrt{2}": ("2", r"-\sqrt{2}", r"\sqrt{3}", "1.4", r"\sqrt[3]{2}", r"\frac{1}{\sqrt{2}}", r"\pm\sqrt{2}", "1.5"),
    r"2\sqrt{3}": (r"3\sqrt{2}", r"\sqrt{6}", r"2+\sqrt{3}", r"-2\sqrt{3}", "6", r"\sqrt[3]{12}"),
    r"2\pi": (r"\pi", r"\pi^2", r"-2\pi", "6.28", r"2+\pi", r"4\pi", "2"),
    "x^2+2x+1": ("x^2+2x", "x^2-2x+1", "(x-1)^2", "(x+2)^2", "y^2+2y+1", "x^2+2x+2", "2x+1"),
    "(1,2)": ("(2,1)", r"\{1,2\}", "[1,2]", "(1,2,3)", "(1,3)", "(-1,2)", "12", "1.2", "[1,2)", "1"),
    r"\{1,2\}": (r"\{1,3\}", r"\{1\}", r"\{1,2,3\}", "(2,1)", r"\{12\}", r"\{-1,2\}"),
    "[0,1)": ("(0,1)", "[0,1]", "(0,1]", "[0,2)", "[1,0)", r"\{0,1\}"),
    "A": ("B", "(B)", r"\text{C}", "AB", "A and B", "A or B", r"\textbf{(D)}", "not A", "none"),
    "cat": ("act", "tac", "dog", "cats", "c", "not cat"),
    "yes": ("no", "not yes", "yes and no", "sey", "yes or no", "maybe"),
    "5": ("2+2=5", "5=6", "x^2=5", "5!", "-5", "15", "0.5", r"5\pm 1", r"\{5, 6\}", "5 or 6", "[4,6]", r"x>5",
        r"x \neq 5"),
    "4": ("x^2=4", "4=5", "3+2=4", r"\pm 4", "4 or 5", "4, 5", r"\{3,4,5\}", "4x", r"\approx 3", "x<4"),
}  # fmt: skip
PROSE = (
    "Adding both gives the total.\n\nThe final answer is {}.",
    "Let me check: yes.\n\n**Answer:** {}",
    "So the answer is ${}$.",
    "<think>Perhaps 17? No.</think>\nThe answer is {}.",
    "Step 1: halve it.\nStep 2: add 3.\n\n#### {}",
    "Final Answer: The final answer is ${}$. I hope it is correct.",
    "First I get 9, so \\boxed{{9}}. Wait, I forgot a term. The answer is \\boxed{{{}}}.",
    "<think>\\boxed{{17}}</think>\n\nThus \\boxed{{{}}}.",
    "The result is\n\\[\n\\boxed{{{}}}\n\\]",
    "<answer>{}</answer>",
    "$$\\boxed{{{}}}$$\nLet me know if you need anything else!",
)
EXPLOITS = (  # {a}: the answer, {b}: another
    r"\boxed{{{b} or {a}}}",
    r"\boxed{{{a} or {b}}}",
    r"\boxed{{{a}, {b}}}",
    r"\boxed{{{a} \text{{ or }} {b}}}",
    r"\boxed{{{a}}} or \boxed{{{b}}}",
    r"\boxed{{{a}}} and then again, no: \boxed{{{b}}}.",
    r"The answer is {b} or {a}.",
    r"The answer is {a} or {b}.",
    r"The answer is either {b} or {a}, I am not sure.",
    r"The answer is between {a} and {b}.",
    r"The answer is not {a}.",
    r"The answer is not {a}. It is {b}.",
    r"It may be {a}, but the final answer is {b}.",
    r"\boxed{{\text{{not }} {a}}}",
    r"\boxed{{\text{{I refuse to say }} {a}}}",
    r"\boxed{{{b}}} (some would say {a})",
    r"<think>The answer is {a}. \boxed{{{a}}}</think> \boxed{{{b}}}",
    r"\boxed{{}} {a}",
    r"\boxed{{?}} The numbers {a} and {b} appear.",
    r"I cannot solve this. If I guessed {a}, I would be dishonest. Final answer: unknown.",
    r"The final answer is unknown. (Not {a}.)",
    r"#### {a} #### {b}",
    r"<answer>{a}</answer><answer>{b}</answer>",
    r"\boxed{{{a}={b}}}",
    r"\boxed{{{b} \to {a}}}",
    r"\boxed{{x \in \{{{a}, {b}\}}}}",
    r"\boxed{{{a}{a}}}",
    r"\boxed{{{a} \pm 1}}",
    r"The answer is \boxed{{your answer here}}, for example {a}.",
    "0 1 2 3 4 5 6 7 8 9 10 {a} {b}",
)
PAIRS = (("42", "41"), ("6", "7"), ("1250", "1300"), ("3/4", "1/4"))


class Variant(NamedTuple):
    column: str
    answer: str
    response: str


def variants() -> Iterator[Variant]:
    """All variants; those of the first three columns are right, the others are not."""
    for answer, texts in NOTATIONS.items():
        for text in texts:
            yield Variant("notation", answer, f"The answer is {text}" + "." * (text[-1] != "."))
            yield Variant("box", answer, f"So we are done: \\boxed{{{text}}}")
    for answer in ("42", "1250", "-12", "3/4", "0.75"):
        yield from (Variant("prose", answer, text.format(answer)) for text in PROSE)
    for answer, texts in NEAR.items():
        yield from (Variant("wrong", answer, f"\\boxed{{{text}}}") for text in texts)
    for a, b in PAIRS:
        yield from (Variant("exploit", a, text.format(a=a, b=b)) for text in EXPLOITS)


VARIANTS = tuple(dict.fromkeys(variants()))


def passes(variant: Variant, verifier: str) -> bool:
    with suppress(UserError):  # an answer that the verifier refuses
        return verify(Problem("p", "?", variant.answer, "variants", verifier), variant.response)
    return False


def score(verifier: str) -> list[int]:
    found = Counter(variant.column for variant in VARIANTS if passes(variant, verifier))
    return [found[column] for column in COLUMNS]


STATED = {
    row[1]: list(map(int, row.groups()[1:])) for row in ROW.finditer((REPOSITORY / "docs/reports_tried.md").read_text())
}


def test_all_variants_are_counted() -> None:
    assert Counter(variant.column for variant in VARIANTS) == dict(zip(COLUMNS, (147, 149, 55, 165, 120), strict=True))
    assert set(STATED) == {"exact", "numeric", "symbolic"}


@pytest.mark.parametrize("verifier", sorted(STATED))
def test_variants_are_judged_as_the_page_says(verifier: str) -> None:
    assert score(verifier) == STATED[verifier]


@pytest.mark.parametrize("verifier", ["numeric", "symbolic"])
def test_no_wrong_variant_is_paid(verifier: str) -> None:
    assert STATED[verifier][3:] == [0, 0] and STATED["symbolic"][1] >= 0.97 * 149


SECOND = (  # (answer, response, whether it is right): written after the verifiers had been mended for the variants
    ("15", r"\boxed{15 \text{ or } 16}", False),
    ("15", "It's 14 or maybe 15.", False),
    ("15", "Either 15 or 16 works.", False),
    ("15", "My answer: 15, or 16.", False),
    ("15", "Answer: somewhere between 14 and 15", False),
    ("15", "Not 15.", False),
    ("15", "The answer isn't 15; it's 16.", False),
    ("15", "Final answer: I don't know", False),
    ("15", "I think 15, but the answer is unclear.", False),
    ("15", r"\boxed{7+7=15}", False),
    ("15", r"\boxed{3\times 4=15}", False),
    ("15", r"\boxed{2x-15=15}", False),
    ("15", r"$\boxed{\ }$ 15", False),
    ("15", r"\boxed{14 \rightarrow 15}", False),
    ("15", r"\boxed{14;15}", False),
    ("15", r"\boxed{\text{cannot say } 15}", False),
    ("15", r"\boxed{\text{not sure, } 15}", False),
    ("15", r"\boxed{14/15}", False),
    ("15", r"\boxed{3\times 5=15}", True),
    ("15", r"\boxed{30/2 = 15}", True),
    ("15", r"\boxed{n = 15}", True),
    ("15", "Total: 10 + 5 = 15. The answer is 15 apples.", True),
    ("15", "There are 3 or 4 ways to see it, but the answer is 15.", True),
    ("15", r"\boxed{15\text{ apples}}", True),
    ("15", "It is not 14. The answer is 15", True),
    ("15", "The answer is: **15**", True),
    ("2500", r"\boxed{2 500}", True),
    ("2500", r"\boxed{2.5\cdot10^3}", True),
    (r"3\sqrt{5}", r"\boxed{3√5}", True),
    (r"3\sqrt{5}", r"\boxed{3*sqrt(5)}", True),
    ("x^3-x", r"\boxed{x**3 - x}", True),
    ("x^3-x", r"\boxed{x*(x-1)*(x+1)}", True),
    (r"\frac{\pi}{4}", r"\boxed{pi/4}", True),
    (r"\frac{\pi}{4}", r"\boxed{π/4}", True),
    ("(3,-1)", r"\boxed{\Bigl(3,-1\Bigr)}", True),
    ("(3,-1)", r"\boxed{\{3,-1\}}", False),
    (r"\{2,5\}", r"\boxed{2, 5}", True),
    (r"\{2,5\}", r"\boxed{\{5,2\}}", True),
    ("60", r"\boxed{60°}", True),
    ("60", r"\boxed{60 minutes}", True),
    ("1/3", r"\boxed{0.\overline{3}}", True),
    ("C", r"\boxed{\textbf{(C)}\ 12}", True),
    ("C", "The correct option is (C).", True),
    ("C", "The answer is D, not C.", False),
    ("0.2", r"\boxed{1/5=0.2}", True),
    ("0.67", r"\boxed{2/3=0.67}", True),
)


@pytest.mark.parametrize(("answer", "response", "right"), SECOND)
def test_symbolic_judges_the_second_batch(answer: str, response: str, right: bool) -> None:
    assert passes(Variant("", answer, response), "symbolic") is right


@pytest.mark.parametrize(("answer", "response", "right"), [case for case in SECOND if not case[2]])
def test_numeric_pays_for_nothing_wrong(answer: str, response: str, right: bool) -> None:
    assert not passes(Variant("", answer, response), "numeric")
