"""Random problems: Hypothesis strategies for the corners, seeded samples for the middle."""

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from tests.ground_truth.cell_truth import CURVES
from tests.ground_truth.truth import Instance, instance

Floats = npt.NDArray[np.float64]
FAMILIES = ("none", "bounds", "hosts", "signals", "costs", "all")
BUDGETS = (1e-3, 0.5, 20.0)  # of the sum of the change rates
PLAIN = ("poisson", "periodic")
# Copies refreshed on request, fetches that fail, and fetches that cost more where they find a change.
FETCHED = (
    "on request",
    "poisson, failing",
    "periodic, failing",
    "poisson, conditional",
    "periodic, conditional",
)


def admits_signals(curve: str, discipline: str) -> bool:
    """Signals go with gaps of either kind; where each n-th is followed fetches succeed."""
    gaps, _, fetches = discipline.partition(", ")
    counted = gaps == "periodic" and curve != "binary"
    return gaps != "on request" and fetches not in (
        ("failing", "conditional") if counted else ("conditional",)
    )


@st.composite
def instances(
    draw: st.DrawFn,
    families: tuple[str, ...] = FAMILIES,
    largest: int = 6,
    disciplines: tuple[str, ...] = PLAIN,
) -> Instance:
    """Draw a feasible instance: ties, zero weights, tiny change rates, n = 1, scales of 1e-9..1e9."""
    curve = draw(st.sampled_from(CURVES))
    discipline = draw(st.sampled_from(disciplines))
    family = draw(st.sampled_from(families))
    n = draw(st.integers(1, largest))
    scale = 10.0 ** draw(st.integers(-9, 9))
    exponents = st.lists(st.integers(-6, 4), min_size=n, max_size=n)
    d = scale * 10.0 ** np.array(draw(exponents), dtype=float)
    w = 10.0 ** np.array(draw(exponents), dtype=float) * draw(st.sampled_from([1e-9, 1.0, 1e9]))
    w[draw(st.lists(st.integers(0, n - 1), max_size=n - 1))] = 0.0
    asked = scale * 10.0 ** np.array(draw(exponents), dtype=float) if discipline == "on request" else None
    total = float(d.sum() if asked is None else asked.sum())
    budget = total * draw(st.sampled_from([1e-3, 0.03, 0.5, 1.0, 20.0]))
    seed = draw(st.integers(0, 2**16))
    return constrained(np.random.default_rng(seed), curve, discipline, family, d, w, budget, asked)


def sample(
    seed: int, curve: str, discipline: str, family: str, n: int, *, ill: bool = False, budget: float = 0.5
) -> Instance:
    """Return a seeded instance: benign (a factor of ten or so) or ill-scaled (ten decades)."""
    rng = np.random.default_rng([seed, n])
    d = 10.0 ** rng.uniform(-6.0, 4.0, n) if ill else rng.lognormal(0.0, 1.0, n)
    w = 10.0 ** rng.uniform(-6.0, 6.0, n) if ill else rng.lognormal(0.0, 1.0, n)
    asked = None
    if discipline == "on request":
        asked = 10.0 ** rng.uniform(-6.0, 4.0, n) if ill else rng.lognormal(0.0, 1.0, n)
    total = float(d.sum() if asked is None else asked.sum())
    return constrained(rng, curve, discipline, family, d, w, budget * total, asked)


def constrained(
    rng: np.random.Generator,
    curve: str,
    discipline: str,
    family: str,
    d: Floats,
    w: Floats,
    budget: float,
    asked: Floats | None = None,
) -> Instance:
    """Add one family of constraints that leaves room for a finite cost, and what the fetches are like."""
    n = len(d)
    gaps, _, fetches = discipline.partition(", ")
    has = {name: family in (name, "all") for name in FAMILIES}
    cost = rng.uniform(0.2, 5.0, n) if has["costs"] else np.ones(n)
    share = budget / n / cost  # rates that spend the budget evenly
    lower, upper = np.zeros(n), np.full(n, np.inf)
    signalled = np.zeros(n, dtype=bool)
    host, limits = np.full(n, -1), np.empty(0)
    if has["signals"] and admits_signals(curve, discipline):
        signalled = rng.random(n) < 0.5
        signalled[0] = True
    if has["bounds"]:
        lower = np.where(rng.random(n) < 0.5, 0.3 * share, 0.0)
        upper = np.where(rng.random(n) < 0.5, 1.5 * share, np.inf)
    lower = np.minimum(lower, np.where(signalled, 0.5 * d, np.inf))
    if has["hosts"]:
        host = rng.integers(-1, 2, n)
        held = np.array([float(np.sum((cost * share)[host == h])) for h in range(2)])
        limits = np.where(held > 0.0, held, budget) * rng.uniform(0.4, 1.2, 2)
    success, dear = np.ones(n), np.zeros(n)
    if fetches == "failing":
        success = np.where(rng.random(n) < 0.7, rng.uniform(0.3, 1.0, n), 1.0)
    elif fetches == "conditional":
        dear = np.where(rng.random(n) < 0.7, 10.0 ** rng.uniform(-2.0, 2.0, n), 0.0)
        dear[0] = 3.0
        lower /= 1.0 + dear
    elif asked is not None:
        lower = np.minimum(lower, 0.5 * asked)
    return instance(
        curve,
        gaps,
        d,
        budget,
        importance=w,
        lower=lower,
        upper=upper,
        cost=cost,
        signalled=signalled,
        host=host,
        limits=limits,
        success=success,
        changed=cost * dear,
        asked=np.inf if asked is None else asked,
    )
