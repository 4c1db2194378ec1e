"""Declarations and numerics that must be refused by name."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
from scipy import sparse

import freshopt as fo
from freshopt.autodiff import compiler
from freshopt.autodiff.compiler import register
from freshopt.cvx import cp
from freshopt.separable.kernel import Kernel
from tests.ground_truth import own_objectives
from tests.ground_truth.named import BINARY_PERIODIC, DELAY, HARMONIC_PERIODIC, written
from tests.ground_truth.refusals import refused
from tests.ground_truth.tolerances import EXACT
from tests.ground_truth.unknown_atom import own_atom, stranger

W = np.array([1.0, 2.0, 3.0])
Written = Callable[[Any], Any]


def declared(written: Written, sense: Literal["minimise", "maximise"] = "minimise") -> fo.Problem:
    """Return a problem of three sources whose objective is what is written."""
    objective = type(
        "Mine", (fo.Objective,), {"sense": sense, "per_source": lambda _self, rate, _sources: written(rate)}
    )()
    return fo.Problem(objective, fo.Sources(W), 3.0)


@pytest.mark.parametrize(
    ("written", "phrases"),
    [
        pytest.param(lambda r: cp.sum(cp.inv_pos(r)), ("shape ()", "no cp.sum"), id="sum"),
        pytest.param(lambda r: cp.inv_pos(r)[:2], ("shape (2,)",), id="two of three"),
        pytest.param(lambda r: W @ cp.inv_pos(r), ("shape ()", "cp.multiply"), id="dot product"),
        pytest.param(lambda r: cp.inv_pos(r) + cp.sum(r), ("not separable", "Sum"), id="sum of all added"),
        pytest.param(lambda r: -(W * cp.log(r)) + r, ("not separable", "@ log(rate)"), id="w * log(rate)"),
        pytest.param(lambda r: cp.inv_pos(r[::-1]), ("not separable", "rate["), id="reversed"),
        pytest.param(lambda r: cp.inv_pos(r[0]) + 0 * r, ("not separable", "rate[0]"), id="first for all"),
        pytest.param(lambda r: np.eye(3) @ cp.inv_pos(r), ("not separable", "@"), id="matrix product"),
        pytest.param(lambda r: cp.cumsum(cp.inv_pos(r)), ("not separable", "cumsum"), id="cumsum"),
        pytest.param(lambda r: cp.hstack([r[1], r[0], r[2]]), ("not separable", "rate[1]"), id="hstack"),
        pytest.param(
            lambda r: cp.maximum(cp.inv_pos(r), cp.max(r)), ("not separable", "max(rate"), id="largest of all"
        ),
        pytest.param(lambda r: cp.diff(cp.hstack([0, r])), ("not separable",), id="differences"),
        pytest.param(
            lambda r: cp.log(1 + 1 / r),
            ("not convex", "DCP", "/ rate'", "cp.inv_pos(rate) for 1/rate"),
            id="not DCP",
        ),
        pytest.param(lambda r: cp.multiply(r, cp.exp(r)), ("not convex", "DCP", "exp(rate)"), id="product"),
        pytest.param(
            lambda r: cp.log(r), ("is concave", "'minimise' needs convex", "log(rate)"), id="concave"
        ),
        pytest.param(lambda r: cp.floor(r) + r, ("not convex", "DCP", "floor(rate)"), id="floor"),
        pytest.param(lambda r: -cp.log_normcdf(r), ("not separable", "mixes sources"), id="log_normcdf"),
        pytest.param(
            lambda r: cp.multiply(np.array([1.0, np.nan, np.nan]), r),
            ("no finite number", "source 1: nan, source 2: nan"),
            id="nan",
        ),
        pytest.param(lambda r: r + np.nan, ("no finite number", "nan"), id="nan for all"),
        pytest.param(
            lambda r: cp.exp(np.array([-np.inf, 0.0, 0.0]) - cp.log(r)),
            ("no finite number", "source 0: -inf"),
            id="infinite",
        ),
        pytest.param(
            lambda r: r / np.array([1.0, 0.0, 2.0]), ("divides by 0", "source 1: 0"), id="division by zero"
        ),
        pytest.param(lambda r: 1j * r, ("complex",), id="complex"),
        pytest.param(
            lambda r: cp.multiply(cp.Parameter(3, nonneg=True, name="weight"), r),
            ("'weight', which has no value",),
            id="parameter",
        ),
        pytest.param(
            lambda r: r + np.ones(4),
            ("cannot be built for 3 sources", "Correct the shapes"),
            id="four constants",
        ),
        pytest.param(
            lambda r: cp.reshape(cp.multiply(np.ones((3, 1)), r)[0], (3,), order="C"),
            ("not separable", "mixes"),
            id="matrix",
        ),
        pytest.param(lambda r: (r, [], 3), ("returned a tuple of 3",), id="tuple"),
        pytest.param(
            lambda r: (r, [True]), ("True among its constraints, which is none",), id="no constraint"
        ),
        pytest.param(
            lambda r: (r, [cp.Variable(3, name="t") <= cp.exp(r)]),
            ("constraint that is not convex by the DCP rules", "exp(rate)"),
            id="constraint not convex",
        ),
        pytest.param(lambda _: 7.0, ("returned a float", "shape (3,)"), id="number"),
        pytest.param(lambda _: W, ("returned a ndarray",), id="array"),
        pytest.param(lambda _: None, ("returned a NoneType",), id="nothing"),
        pytest.param(
            lambda r: cp.inv_pos(r) + cp.Variable(3, name="stray"),
            ("'stray'", "nothing constrains"),
            id="stray",
        ),
    ],
)
def test_refused_with_the_term(written: Written, phrases: tuple[str, ...]) -> None:
    with pytest.raises(fo.ObjectiveError) as caught:
        declared(written)
    message = str(caught.value)
    assert message.startswith("Mine.")
    assert all(phrase in message for phrase in phrases), message


def test_maximising_a_convex_expression_is_refused() -> None:
    with pytest.raises(fo.ObjectiveError, match="is convex but sense = 'maximise' needs concave"):
        declared(cp.inv_pos, "maximise")


def test_auxiliary_constraints_need_a_kernel() -> None:
    def written(rate: Any) -> Any:  # noqa: ANN401
        t = cp.Variable(3)
        return t, [t >= cp.inv_pos(rate)]

    with pytest.raises(
        fo.ObjectiveError, match=r"auxiliary constraints but there is no kernel.*Write kernel"
    ):
        declared(written)


def test_a_kernel_does_not_excuse_the_declaration() -> None:
    class Mixed(fo.Objective):
        def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401, ARG002
            return cp.inv_pos(rate) + cp.sum(rate)

        def kernel(self, sources: fo.Sources) -> Any:  # noqa: ANN401
            return DELAY.kernel(sources)

    with pytest.raises(fo.ObjectiveError, match=r"Mixed\.per_source is not separable"):
        fo.Problem(Mixed(), fo.Sources(W), 3.0)


class patchy(cp.huber):  # type: ignore[misc]  # noqa: N801 - CVXPY is untyped; atoms are named like functions
    """An atom of a user's own with a hole: nan at 1."""

    def __init__(self, x: Any) -> None:  # noqa: ANN401
        super().__init__(x, 1)

    def numeric(self, values: list[Any]) -> Any:  # noqa: ANN401
        return np.where(values[0] == 1.0, np.nan, values[0] ** 2)


def test_atoms_without_curvature_are_refused() -> None:
    """CVXPY has smooth atoms for other kinds of problems: sin, tanh, the normal distribution."""
    pending, tried = [cp.atoms.elementwise.elementwise.Elementwise], []
    while pending:
        for kind in pending.pop().__subclasses__():
            pending.append(kind)
            home = kind.__module__
            if home.startswith("cvxpy.") and home.rsplit(".", 1)[1] in (
                "ceil",
                "hyperbolic",
                "trig",
                "normcdf",
            ):
                tried.append(kind.__name__)
                refused(
                    rf"DCP rules: the term '{kind.__name__}\(rate\)'", declared, kind, error=fo.ObjectiveError
                )
    assert {"ceil", "floor"} <= set(tried)


@pytest.mark.parametrize("registered", [False, True])
def test_nan_at_ordinary_rates_is_refused_by_term_and_source(registered: bool) -> None:
    def derivatives(x: Any) -> Any:  # noqa: ANN401
        return np.where(x == 1.0, np.nan, x * x), 2.0 * x, 2.0 + 0.0 * x

    kind = type("patchy", (patchy,), {})
    if registered:
        register(kind, derivatives)
    scale = np.array([2.0, 1.0, 2.0])  # three sources share 3.0: the second is at 1
    with pytest.raises(
        fo.ObjectiveError,
        match=r"Mine\.per_source is not a number for source 1 at the rate 1.*the term 'patchy\(.*' is nan",
    ):
        declared(lambda r: cp.exp(r) + 2 * kind(cp.multiply(scale, r)))


def test_the_domain_is_refused_by_term_and_source() -> None:
    with pytest.raises(
        fo.ObjectiveError,
        match=r"Mine\.per_source is undefined for source 2 at the rate 3.*rate' does not hold.*max_rate",
    ):
        declared(lambda r: -cp.log(np.array([9.0, 9.0, 2.0]) - r))


def test_each_kind_of_source_has_its_own_domain() -> None:
    """The logarithm is for signalled sources, whose rates stay below 1."""

    class Two(fo.Objective):
        def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401, ARG002
            return cp.inv_pos(rate)

        def signalled_per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401, ARG002
            return -cp.log(2.0 - rate)

    fo.Problem(Two(), fo.Sources([1.0, 1.0], signalled=[True, False]), 5.0)
    with pytest.raises(fo.ObjectiveError, match=r"Two\.signalled_per_source is undefined for source 1"):
        fo.Problem(Two(), fo.Sources([1.0, 3.0], signalled=True), 50.0)


def test_an_objective_without_declaration_says_so() -> None:
    class Empty(fo.Objective):
        pass

    with pytest.raises(fo.ObjectiveError, match="Empty declares no per_source"):
        fo.Problem(Empty(), fo.Sources([1.0]), 1.0)


def test_signals_without_their_cell_are_refused() -> None:
    class Plain(fo.Objective):
        def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401, ARG002
            return cp.inv_pos(rate)

    with pytest.raises(
        fo.ObjectiveError,
        match=r"'b' is signalled, but Plain declares no signalled_per_source.*signalled=False",
    ):
        fo.Problem(Plain(), fo.Sources([1.0, 2.0], names=["a", "b"], signalled=[False, True]), 1.0)


def test_signals_beside_periodic_refreshes_are_for_objectives_that_tell_their_cost() -> None:
    sources = fo.Sources([1.0, 2.0], signalled=[True, False])
    for objective in (BINARY_PERIODIC, HARMONIC_PERIODIC, fo.problems.Age()):
        assert fo.Problem(objective, sources, 1.0).numerics is not None
    with pytest.raises(fo.ObjectiveError, match=r"source 0 is signalled, but LaterThan .*signalled=False"):
        fo.Problem(fo.problems.LaterThan(1.0), sources, 1.0)


@pytest.mark.parametrize(
    "written",
    [
        pytest.param(lambda r: cp.multiply(W, cp.inv_pos(r)), id="multiply"),
        pytest.param(lambda r: 3.0 * cp.inv_pos(r) / 2.0, id="scalars"),
        pytest.param(lambda r: cp.inv_pos(r + W) - r / 100.0 + W, id="sums"),
        pytest.param(lambda r: cp.exp(-cp.log(r)), id="composition"),
        pytest.param(lambda r: cp.inv_pos(cp.multiply(1 / W, r)), id="affine inside"),
        pytest.param(
            lambda r: cp.vec(cp.inv_pos(cp.reshape(r, (3, 1), order="C")), order="C"), id="reshaped"
        ),
        pytest.param(
            lambda r: cp.vec(
                cp.multiply(sparse.csc_array(W[:, None]), cp.inv_pos(cp.reshape(r, (3, 1), order="C"))),
                order="C",
            ),
            id="sparse",
        ),
        pytest.param(
            lambda r: cp.multiply(cp.Parameter(3, nonneg=True, value=W), cp.inv_pos(r)), id="parameter"
        ),
    ],
)
def test_separable_expressions_pass_and_are_proved(written: Written) -> None:
    assert fo.solve(declared(written)).status is fo.Status.OPTIMAL


def test_one_source_has_nothing_to_mix() -> None:
    class Summed(fo.Objective):
        def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
            return sources.importance[0] * cp.inv_pos(rate)

    solution = fo.solve(fo.Problem(Summed(), fo.Sources([1.0]), 2.0))
    assert abs(solution.value - 0.5) <= 1e-12


SOURCES = fo.Sources([1.0, 4.0, 2.0], importance=[1.0, 0.5, 3.0], names=["a", "b", "c"])
RIGHT: dict[str, Any] = {
    "unit_cost": lambda r, d: d / r,
    "unit_marginal": lambda r, d: d / r**2,
    "unit_inverse": lambda p, d: np.sqrt(d / p),
}


def delay(**wrong: Any) -> fo.Objective:  # noqa: ANN401 - formulas
    """Return the delay Δ/ρ with a kernel of which some formulas are others."""

    class Delay(own_objectives.Delay):
        def kernel(self, sources: fo.Sources) -> Kernel:
            return Kernel(sources.importance, (sources.change_rate,), **(RIGHT | wrong))

    return Delay()


def fresh(**more: Any) -> fo.Objective:  # noqa: ANN401
    """Return the share of time fresh, maximised, with its loss as kernel."""

    class Fresh(fo.Objective):
        sense = "maximise"

        def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
            d = sources.change_rate
            return cp.multiply(sources.importance, 1 - cp.multiply(d, cp.inv_pos(d + rate)))

        def kernel(self, sources: fo.Sources) -> Kernel:
            return Kernel(
                sources.importance,
                (sources.change_rate,),
                lambda r, d: d / (d + r),
                lambda r, d: d / (d + r) ** 2,
                lambda p, d: np.maximum(0.0, np.sqrt(d / p) - d),
                **more,
            )

    return Fresh()


def test_a_kernel_that_is_the_declaration_is_taken() -> None:
    found = fo.solve(fo.Problem(delay(), SOURCES, bandwidth=3.0))
    root = np.sqrt(SOURCES.importance * SOURCES.change_rate)
    assert np.allclose(found.rates, 3.0 * root / root.sum(), rtol=EXACT, atol=0.0)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (
            {name: lambda x, d: d / x**2 for name in RIGHT},
            "the value 16 of 'a' at the rate 0.25; declared is 4",
        ),
        ({"unit_cost": lambda r, d: d / r + 1e-3}, "the value .* declared is"),
        ({"unit_marginal": lambda r, d: 1.001 * d / r**2}, "the marginal .* declared is"),
        ({"unit_marginal": lambda r, _: 0.0 * r}, "the marginal 0 of 'a'"),
        ({"unit_cost": lambda r, _: np.nan * r}, "the value nan"),
        ({"unit_inverse": lambda p, d: d / p}, "the inverse marginal .* Correct unit_inverse"),
        ({"unit_inverse": lambda p, _: np.nan * p}, "the inverse marginal nan"),
    ],
)
def test_a_kernel_that_is_not_is_refused(wrong: dict[str, Callable[..., Any]], named: str) -> None:
    with pytest.raises(
        fo.ObjectiveError, match=rf"^the kernel beside Delay\.per_source has {named}"
    ) as caught:
        fo.Problem(delay(**wrong), SOURCES, bandwidth=3.0)
    assert "\n" not in str(caught.value)


def test_the_loss_of_what_is_maximised_needs_its_gain() -> None:
    """Rates would be right, and the value minus the stale share."""
    with pytest.raises(fo.ObjectiveError, match=r"kernel's cost is minus that, unless unit_gain"):
        fo.Problem(fresh(), SOURCES, bandwidth=3.0)
    found = fo.solve(fo.Problem(fresh(unit_gain=lambda r, d: r / (r + d)), SOURCES, bandwidth=3.0))
    fresh_share = found.rates / (found.rates + SOURCES.change_rate)
    assert found.value == pytest.approx(float(SOURCES.importance @ fresh_share), rel=EXACT)


def test_only_the_chosen_kind_of_source_is_looked_at() -> None:
    """A kernel of silent sources is not asked about signalled ones, nor about sources of no importance."""

    class Both(type(fresh(unit_gain=lambda r, d: r / (r + d)))):  # type: ignore[misc]
        def signalled_per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
            return cp.multiply(sources.importance / sources.change_rate, rate)

    mixed = fo.Sources([1.0, 4.0, 2.0], importance=[0.0, 1.0, 1.0], signalled=[False, False, True])
    assert fo.Problem(Both(), mixed, bandwidth=3.0).numerics is not None
    nothing = fo.Sources([1.0, 4.0], importance=0.0)
    assert fo.Problem(delay(unit_cost=lambda r, d: d + r), nothing, bandwidth=3.0).numerics is not None


@pytest.mark.parametrize("wrong", [{}, {"unit_marginal": lambda r, d: 2.0 * d / r**2}])
def test_a_cone_form_has_its_kernel_compared_with_itself(wrong: dict[str, Callable[..., Any]]) -> None:
    plain = delay(**wrong)

    class Epigraph(fo.Objective):
        def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
            t = cp.Variable(len(sources))
            return cp.multiply(sources.importance * sources.change_rate, t), [cp.inv_pos(rate) <= t]

        def kernel(self, sources: fo.Sources) -> Any:  # noqa: ANN401
            return plain.kernel(sources)

    if not wrong:
        assert fo.Problem(Epigraph(), SOURCES, bandwidth=3.0).numerics is not None
        return
    with pytest.raises(fo.ObjectiveError, match=r"below its tangent|inverse marginal"):
        fo.Problem(Epigraph(), SOURCES, bandwidth=3.0)


def test_a_kernel_beside_an_atom_without_derivatives_is_compared_by_value() -> None:
    def strange(factor: float) -> fo.Objective:
        class Strange(fo.Objective):
            def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
                return cp.multiply(sources.importance, stranger(rate))

            def kernel(self, sources: fo.Sources) -> Kernel:
                return Kernel(
                    factor * sources.importance,
                    (sources.change_rate,),
                    lambda r, _: stranger(cp.Constant(r)).value,
                    lambda r, _: (
                        -(stranger(cp.Constant(r + 1e-6)).value - stranger(cp.Constant(r - 1e-6)).value)
                        / 2e-6
                    ),
                    lambda p, d: p * d,
                )

        return Strange()

    with pytest.raises(fo.ObjectiveError, match=r"the value .* declared is"):
        fo.Problem(strange(2.0), SOURCES, bandwidth=3.0)


class inverse(own_atom):  # noqa: N801 - as in CVXPY
    """1/x, an atom of a user's own."""

    def numeric(self, values: Any) -> Any:  # noqa: ANN401
        return 1.0 / np.asarray(values[0])

    def is_decr(self, idx: int) -> bool:  # noqa: ARG002
        return True


Registered = written(
    "Registered", lambda rate, sources: cp.multiply(sources.importance * sources.change_rate, inverse(rate))
)


@pytest.mark.parametrize(
    ("derivatives", "named"),
    [
        (lambda x: (1 / x, -1 / x**2, 2 / x**3), ""),
        (lambda x: (1 / x, -(1 + x) / x**2, 2 / x**3), "below its tangent"),
        (lambda x: (1 / x, 0.0 * x, 2 / x**3), "below its tangent"),
        (lambda x: (1 / x, -1.001 / x**2, 2 / x**3), "below its tangent"),
        (lambda x: (1 / x + 0.001, -1 / x**2, 2 / x**3), "the value .*; the atom's own is"),
    ],
)
def test_registered_derivatives_are_the_atoms(
    derivatives: Callable[..., Any], named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler, "_REGISTERED", dict(compiler._REGISTERED))
    register(inverse, derivatives)
    if not named:
        assert fo.Problem(Registered(), SOURCES, bandwidth=3.0).numerics is not None
        return
    with pytest.raises(fo.ObjectiveError, match=rf"what is registered for an atom in .*inverse.*{named}"):
        fo.Problem(Registered(), SOURCES, bandwidth=3.0)
