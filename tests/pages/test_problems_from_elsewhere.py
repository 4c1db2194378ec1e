"""The twelve problems of notebook 12 against optima found another way."""

import importlib.util
import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import lambertw

import freshopt as fo
from tests.ground_truth.refusals import present
from tests.ground_truth.tolerances import SCALAR

ROOT = Path(__file__).parents[2]
PATH = ROOT / "notebooks" / "12_problems_from_elsewhere.ipynb"
LONGEST_DECLARATION = 12
Truth = Callable[[dict[str, Any]], float]


def cells(kind: str) -> list[str]:
    notebook = json.loads(PATH.read_text(encoding="utf-8"))
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == kind]


@cache
def names() -> dict[str, Any]:
    """Return what the code of the notebook leaves behind, but for its pictures."""
    found: dict[str, Any] = {"__name__": "notebook"}
    with mpl.rc_context():
        for text in cells("code"):
            if "plt.subplots" not in text:
                plain = "\n".join(line for line in text.splitlines() if not re.match(r"%|plt\.", line))
                exec(compile(plain, PATH.name, "exec", dont_inherit=True), found)
    return found


def fill(marginal: Callable[[Any, Any], Any], most: Any, limit: float, low: float = 1e-9) -> Any:  # noqa: ANN401
    """Return rates up to `most` whose marginals are one price, by bisection in both."""

    def rates(price: float) -> Any:  # noqa: ANN401
        below, above = np.full(len(most), low), np.array(most, dtype=float)
        for _ in range(90):
            middle = 0.5 * (below + above)
            up = marginal(middle, slice(None)) > price
            below, above = np.where(up, middle, below), np.where(up, above, middle)
        return above

    price = np.exp(brentq(lambda p: np.sum(rates(np.exp(p))) - limit, -30.0, 30.0, xtol=1e-14, rtol=1e-14))
    return rates(float(price))


def order_quantity(d: dict[str, Any]) -> float:
    cost = d["holding"] * d["demand"] / 2
    rates = fill(lambda x, k: cost[k] / x**2, np.full(4, 8.0), 8.0)
    return float(np.sum(cost / rates) + 60.0 * 8.0)


def sample(d: dict[str, Any]) -> float:
    spread = (d["people"] * d["deviation"]) ** 2
    # In thousands of interviews, of which marginals are of a size that `fill` expects.
    rates = fill(lambda x, k: spread[k] / x**2 / 1e9, d["people"] / 1e3, 1.0) * 1e3
    return float(np.sum(spread / rates))


def channels(d: dict[str, Any]) -> float:
    # The level with so many channels filled: the largest that is above the noise of all of them.
    noise = np.sort(d["noise"])
    level = min((2.0 + noise[:k].sum()) / k for k in range(1, 6))
    return float(np.sum(np.log(np.maximum(noise, level))))


def parking_lot(d: dict[str, Any]) -> float:  # noqa: ARG001
    share = brentq(lambda x: 1 / x - 5 / (1 - x), 1e-3, 0.9, xtol=1e-15)
    return float(np.log(share) + 5 * np.log(1 - share))


def cache_of_utilities(d: dict[str, Any]) -> float:
    w = d["popularity"]
    # The k most popular are held whole, for the least k that leaves the others below 1.
    for k in range(20):
        price = w[k:].sum() / (20.0 - k)
        if w[k] <= price:
            break
    return float(w @ np.log(np.minimum(1.0, w / price)))


def lines(d: dict[str, Any]) -> float:
    a = d["traffic"]
    rates = a + fill(lambda x, k: a[k] / x**2, np.full(4, 60.0), 60.0 - float(a.sum()))
    return float(np.sum(a / (rates - a)))


def search(d: dict[str, Any]) -> float:
    p, c = d["chance"], d["sight"]
    rates = fill(lambda x, k: p[k] * c[k] * np.exp(-c[k] * x), np.full(5, 50.0), 8.0, low=0.0)
    rates[3:] = 0.0  # p·c < λ
    return float(p @ -np.expm1(-c * rates))


def returns(d: dict[str, Any]) -> float:  # noqa: ARG001
    x = brentq(lambda x: 0.032 * x**-0.36 - 0.144 * (100 - x) ** -0.64, 1.0, 99.0, xtol=1e-13)
    return float(0.05 * x**0.64 + 0.4 * (100 - x) ** 0.36)


def power(d: dict[str, Any]) -> float:
    # 1/ρ² = λ·log 2·2^ρ/g: ρ·e^{ρ·log 2/2} = √(g/(λ·log 2)), Lambert's function.
    half = np.log(2) / 2

    def rates(price: float) -> Any:  # noqa: ANN401
        return lambertw(half * np.sqrt(d["gain"] / (price * np.log(2)))).real / half

    price = brentq(lambda p: np.sum(2.0 ** rates(p) / d["gain"]) - 40.0, 1e-9, 10.0, xtol=1e-16)
    return float(np.sum(1 / rates(price)))


def five_pages(d: dict[str, Any]) -> float:
    a = d["changes"][:4]
    rates = fill(
        lambda x, k: -np.expm1(-a[k] / x) / a[k] - np.exp(-a[k] / x) / x, np.full(4, 5.0), 5.0, low=1e-3
    )
    return float(np.sum(rates / a * -np.expm1(-a / rates)))


TRUTHS: dict[str, Truth] = {
    "order quantity": order_quantity,
    "sample": sample,
    "channels": channels,
    "parking lot": parking_lot,
    "cache": cache_of_utilities,
    "lines": lines,
    "search": search,
    "returns": returns,
    "power": power,
    "five pages": five_pages,
    "worst age": lambda _: (5.0 * 1 + 2 + 3 + 4 + 2.0 * 5) / 5.0,
    "service": lambda _: float(np.log(100.0)) * (4.0 + 1.0 + 1.0 / 7.0 + 1.0 / 30.0),
}


def test_there_are_twelve_with_their_origins() -> None:
    assert [*names()["solutions"]] == [*TRUTHS] == [*names()["optima"]]
    heads = re.findall(r"^\*\*(\d+)\. [^*]+\*\*(.)", "\n".join(cells("markdown")), re.MULTILINE)
    assert [int(number) for number, _ in heads] == [*range(1, 13)]


@pytest.mark.parametrize("name", TRUTHS)
def test_each_is_the_optimum_and_proved(name: str) -> None:
    solution, truth = names()["solutions"][name], TRUTHS[name](names())
    assert solution.status is fo.Status.OPTIMAL
    assert solution.value == pytest.approx(truth, rel=SCALAR)
    assert names()["optima"][name] == pytest.approx(truth, rel=SCALAR)
    assert solution.certificate.relative_gap <= 1e-11


def test_the_gallery_shows_each_with_its_optimum_and_picture() -> None:
    spec = present(
        importlib.util.spec_from_file_location("reference", ROOT / "docs" / "_ext" / "reference.py")
    )
    reference = importlib.util.module_from_spec(spec)
    present(spec.loader).exec_module(reference)
    _, page = reference.gallery()
    # Origin with its year, declaration, what came out.
    cases = re.split(r"^\*\*\d+\. ", page, flags=re.MULTILINE)[1:]
    assert len(cases) == len(TRUTHS)
    for case, (name, truth) in zip(cases, TRUTHS.items(), strict=True):
        assert re.match(r"[^*]+\*\* \(.*\d{4}", case) or name in {"service", "returns"}
        assert f'solutions["{name}"] = ' in case
        known, found = re.findall(
            r"^optimum (\S+), found (\S+): right to 1e-9 True, proved True$", case, re.M
        )[0]
        assert [float(known), float(found)] == pytest.approx([truth(names())] * 2, rel=1e-8)
    titles = re.findall(r'<img src="data:image/png;base64,[^"]+" alt="([^"]+)">', page)
    assert [int(each.split(".")[0]) for each in ", ".join(titles).split(", ")] == [*range(1, 13)]
    assert "plt.subplots" not in page


def test_pages_get_the_published_rates() -> None:
    # Cho & Garcia-Molina, "Effective page refresh policies for Web crawlers", ACM TODS 28(4), 2003.
    fresh = names()["solutions"]["five pages"].rates
    assert fresh == pytest.approx([1.15, 1.36, 1.35, 1.14, 0.0], abs=0.005)
    assert names()["aged"].rates == pytest.approx([0.84, 0.97, 1.03, 1.07, 1.09], abs=0.006)


def test_each_is_declared_in_a_dozen_lines() -> None:
    told = (re.search(r"\A.*^solutions\[[^\n]*", text, re.DOTALL | re.MULTILINE) for text in cells("code"))
    declared = [found[0] for found in told if found]
    assert len(declared) == 12
    for text in declared:
        assert sum(bool(line.strip()) for line in text.splitlines()) <= LONGEST_DECLARATION, text
