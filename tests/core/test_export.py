"""Exported predictors: the same numbers as `predict_posterior`, without PyMC."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr
from marks import often

import pymc_scalable_gp as sgp

C = pm.gp.cov
rng = np.random.default_rng(5)
X = rng.uniform([1990.0, 0.0], [1993.0, 3.0], (70, 2))
y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(70)
Xnew = rng.uniform([1990.0, 0.0], [1993.0, 3.5], (9, 2))


def smooth(ls, eta):
    return eta**2 * C.Matern52(2, ls=ls)


def mixed(ls, eta):
    short = C.Matern32(2, ls=ls[0], active_dims=[1]) * C.RatQuad(2, ls=ls, alpha=eta)
    powers = C.Exponential(2, ls=ls) ** 2.0 + C.Periodic(2, period=1.5, ls=ls) * C.Constant(eta)
    waves = C.Cosine(2, ls=4.0 * ls) + 0.1 * C.Linear(2, c=[1990.0, 0.0])
    return short + powers + waves + 0.01 * C.Polynomial(2, c=[1990.0, 1.0], d=2.0, offset=eta)


def along(ls, eta):
    return eta * C.Matern52(2, ls=ls[0], active_dims=[0])


def level(b):
    return pm.gp.mean.Constant(b)


def slopes(b):
    return pm.gp.mean.Linear([1e-3, 0.2], b) + pm.gp.mean.Constant(b) * pm.gp.mean.Constant(2.0)


def fitted(kind, kernel=smooth, mean=level, sigma=None, draws=6, X=X, **settings):
    with pm.Model():
        ls, eta = pm.Gamma("ls", 4, 4, shape=2), pm.HalfNormal("eta", 1.0)
        b, noise = pm.Normal("b", 0.0, 1.0), pm.HalfNormal("sigma", 1.0)
        gp = kind(cov_func=kernel(ls, eta), mean_func=mean(b), **settings)
        if kind is sgp.CholQRMarginal:
            gp.build(X, indices=np.arange(12))
        gp.marginal_likelihood("y", X=X, y=y, sigma=noise if sigma is None else sigma)
    made = np.random.default_rng(1)
    values = {
        "ls": made.uniform(0.5, 1.5, (2, draws, 2)),
        "eta": made.uniform(0.5, 1.5, (2, draws)),
        "b": made.normal(size=(2, draws)),
        "sigma": made.uniform(0.05, 0.2, (2, draws)),
    }
    dims = {name: ("chain", "draw", "axis")[: v.ndim] for name, v in values.items()}
    return gp, xr.Dataset({name: (dims[name], v) for name, v in values.items()})


CASES = {
    "exact": (sgp.ExactMarginal, {}),
    "exact, many kernels": (sgp.ExactMarginal, {"kernel": mixed, "mean": slopes}),
    "points": (sgp.CholQRMarginal, {"n_inducing": 12}),
    "points, many kernels": (sgp.CholQRMarginal, {"n_inducing": 12, "kernel": mixed, "mean": slopes}),
    "neighbours": (sgp.VecchiaMarginal, {"n_inducing": 8, "neighbors": 5, "mean": slopes}),
    "neighbours alone": (sgp.VecchiaMarginal, {"n_inducing": 0, "neighbors": 5}),
    "no neighbours": (sgp.VecchiaMarginal, {"n_inducing": 8, "neighbors": 0}),
    "own noise": (sgp.VecchiaMarginal, {"neighbors": 6, "sigma": np.linspace(0.1, 0.3, 70)}),
}


@pytest.mark.parametrize(
    "name",
    often(
        CASES, "exact, many kernels", "points", "points, many kernels", "neighbours", "no neighbours",
        "own noise",
    ),
)  # fmt: skip
def test_predicts_as_the_gp(name, tmp_path):
    kind, settings = CASES[name]
    gp, idata = fitted(kind, **settings)
    path = gp.export(idata, tmp_path / "gp.npz", num_samples=7, progressbar=False)
    loaded = sgp.load_predictor(path)
    kwargs = {"num_samples": 7, "random_seed": 0, "progressbar": False}
    for pred_noise in (False, True)[: 1 if name == "own noise" else 2]:
        wanted = gp.predict_posterior(Xnew, idata, pred_noise=pred_noise, **kwargs)
        found = loaded.predict(Xnew, pred_noise=pred_noise)
        for each in ("mean", "sd"):
            np.testing.assert_allclose(found[each], wanted[each], rtol=1e-10)
    assert loaded.predict(Xnew[:0])["mean"].shape == (0,)
    assert repr(loaded) == f"<ExportedPredictor: {kind.__name__}, 2 inputs, 7 draws>"


def test_columns_of_a_table_in_another_order_are_refused(tmp_path):
    table, other = pd.DataFrame(X, columns=["year", "depth"]), pd.DataFrame(X, columns=["a", "b"])
    gp, idata = fitted(sgp.ExactMarginal, X=table)
    loaded = sgp.load_predictor(gp.export(idata, tmp_path / "gp.npz", num_samples=2, progressbar=False))
    wanted = loaded.predict(X[:3])["mean"]
    for same in (table, other):
        np.testing.assert_array_equal(loaded.predict(same[:3])["mean"], wanted)
    with pytest.raises(ValueError, match=r"Xnew has columns in another order.*as \['year', 'depth'\]"):
        loaded.predict(table[["depth", "year"]])
    given = {"X": table[["depth", "year"]], "y": y, "sigma": 0.1}
    with pytest.raises(
        ValueError, match=r"given\[\"X\"\] has columns in another order.*as \['year', 'depth'\]"
    ):
        gp.predict_posterior(X[:3], idata, given=given, progressbar=False)


def test_blocks_of_rows(tmp_path, monkeypatch):
    gp, idata = fitted(sgp.VecchiaMarginal, n_inducing=8, neighbors=5)
    loaded = sgp.load_predictor(gp.export(idata, tmp_path / "gp.npz", progressbar=False))
    whole = loaded.predict(Xnew)
    monkeypatch.setattr("pymc_scalable_gp.exported._NUMBERS", 700)
    parts = loaded.predict(Xnew)
    np.testing.assert_allclose(parts["sd"], whole["sd"], rtol=1e-12)
    assert loaded.settings["draws"] == 12


def test_counts(tmp_path):
    counts = np.random.default_rng(2).poisson(2.0, 70)
    with pm.Model():
        ls = pm.Gamma("ls", 4, 4)
        gp = sgp.VecchiaMarginal(cov_func=C.Matern32(2, ls=ls), n_inducing=6, neighbors=6)
        gp.marginal_likelihood("y", X=X, y=counts, likelihood=lambda f: pm.Poisson.dist(mu=pm.math.exp(f)))
    idata = xr.Dataset({"ls": (("chain", "draw"), [[0.7, 1.1]])})
    loaded = sgp.load_predictor(gp.export(idata, tmp_path / "counts.npz", progressbar=False))
    wanted = gp.predict_posterior(Xnew, idata, progressbar=False)
    np.testing.assert_allclose(loaded.predict(Xnew)["sd"], wanted["sd"], rtol=1e-10)
    with pytest.raises(ValueError, match="scalar sigma"):
        loaded.predict(Xnew, pred_noise=True)


def test_latent_functions(tmp_path):
    with pm.Model() as model:
        ls = pm.Gamma("ls", 4, 4)
        gp = sgp.VecchiaLatent(cov_func=C.Matern32(2, ls=ls), n_inducing=6, neighbors=6)
        gp.prior("f", X=X)
    made = np.random.default_rng(3)
    values = {v.name: made.uniform(0.5, 1.5, (1, 2, *v.shape.eval())) for v in model.free_RVs}
    idata = xr.Dataset(
        {name: (("chain", "draw", f"{name}_dim")[: v.ndim], v) for name, v in values.items()}
    )
    loaded = sgp.load_predictor(gp.export(idata, tmp_path / "latent.npz", progressbar=False))
    wanted = gp.predict_posterior(Xnew, idata, progressbar=False)
    for each in ("mean", "sd"):
        np.testing.assert_allclose(loaded.predict(Xnew)[each], wanted[each], rtol=1e-10)


def test_a_lengthscale_in_a_dimension_of_one(tmp_path):
    with pm.Model(coords={"one": [0]}):
        kernel = C.Matern52(2, ls=pm.Gamma("ls", 4, 4, dims="one"), active_dims=[0])
        gp = sgp.ExactMarginal(cov_func=kernel)
        gp.marginal_likelihood("y", X=X, y=y, sigma=0.2)
    idata = xr.Dataset({"ls": (("chain", "draw", "one"), [[[0.7], [1.1]]])})
    loaded = sgp.load_predictor(gp.export(idata, tmp_path / "gp.npz", progressbar=False))
    wanted = gp.predict_posterior(Xnew, idata, progressbar=False)
    np.testing.assert_allclose(loaded.predict(Xnew)["sd"], wanted["sd"], rtol=1e-10)


def test_exact_predictions_of_another_class(tmp_path):
    gp, idata = fitted(sgp.StateSpaceMarginal, along)
    path = gp.export(idata, tmp_path / "gp.npz", exact=True, progressbar=False)
    wanted = gp.predict_posterior(Xnew, idata, exact=True, progressbar=False)
    np.testing.assert_allclose(sgp.load_predictor(path).predict(Xnew)["sd"], wanted["sd"], rtol=1e-10)
    with pytest.raises(ValueError, match=r"CholQRMarginal, .*exact=True"):
        gp.export(idata, path)


ALONE = """
import sys, time
start = time.perf_counter()
import pymc_scalable_gp as sgp
found = sgp.load_predictor(sys.argv[1]).predict([[1991.0, 0.5], [1992.0, 2.5]])
print(time.perf_counter() - start, *found["mean"], *found["sd"])
heavy = {"pymc", "pytensor", "numba", "jax", "xarray", "sklearn"} & set(sys.modules)
assert not heavy, heavy
"""


def test_another_process_imports_no_compiler(tmp_path):
    gp, idata = fitted(sgp.VecchiaMarginal, n_inducing=8, neighbors=5)
    path = gp.export(idata, tmp_path / "gp.npz", progressbar=False)
    run = subprocess.run([sys.executable, "-c", ALONE, path], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    wanted = gp.predict_posterior([[1991.0, 0.5], [1992.0, 2.5]], idata, progressbar=False)
    found = np.array(run.stdout.split()[1:], dtype=float)
    np.testing.assert_allclose(found, [*wanted["mean"], *wanted["sd"]], rtol=1e-10)


def test_fewer_rows_that_replaced_those_of_the_neighbors_are_refused(tmp_path):
    with pm.Model() as model:
        gp = sgp.VecchiaMarginal(cov_func=smooth(1.0, 1.0), n_inducing=5, neighbors=5)
        gp.marginal_likelihood("y", X=pm.Data("X", X), y=pm.Data("targets", y), sigma=pm.HalfNormal("s"))
        pm.set_data({"X": X[:30], "targets": y[:30]})
    idata = xr.DataTree.from_dict(
        {"posterior": xr.Dataset({"s": (("chain", "draw"), np.full((1, 4), 0.2))})}
    )
    with pytest.raises(ValueError, match="X was replaced, and order and neighbors"):
        gp.export(idata, tmp_path / "fewer", model=model, progressbar=False)


def test_refusals(tmp_path):
    path = tmp_path / "gp.npz"

    class Mine(C.Matern52):
        pass

    gp, idata = fitted(sgp.ExactMarginal, lambda ls, eta: Mine(2, ls=ls))
    with pytest.raises(ValueError, match="cov_func holds Mine, which no file can hold"):
        gp.export(idata, path)
    gp, idata = fitted(sgp.ExactMarginal, mean=lambda b: lambda X: b * X[:, 0])
    with pytest.raises(ValueError, match="mean_func holds function"):
        gp.export(idata, path)
    gp, idata = fitted(sgp.GriefGP, lambda ls, eta: C.ExpQuad(2, ls=ls), grid=5, rank=8)
    with pytest.raises(ValueError, match="CholQRMarginal, ExactMarginal"):
        gp.export(idata, path)
    with pytest.raises(ValueError, match=r"has no data yet.*\(of a sum the whole is exported, no part\)$"):
        sgp.ExactMarginal(cov_func=C.ExpQuad(1, ls=1.0)).export(idata, path)
    gp, idata = fitted(
        sgp.VecchiaMarginal, lambda ls, eta: C.Linear(2, c=0.0) + C.Matern52(2, ls=ls), neighbors=4
    )
    with pytest.raises(ValueError, match="which no file holds: give exact=True"):
        gp.export(idata, path, progressbar=False)
    tasks = np.c_[X[:, 0], np.arange(len(X)) % 2]
    with pm.Model():
        coregion = C.Coregion(2, W=np.ones((2, 1)), kappa=np.ones(2), active_dims=[1])
        kernel = coregion * C.Matern52(2, ls=1.0, active_dims=[0])
        gp = sgp.VecchiaMarginal(cov_func=kernel, n_inducing=5, neighbors=4)
        gp.marginal_likelihood("y", X=tasks, y=y, sigma=pm.HalfNormal("sigma"), progressbar=False)
    with pytest.raises(ValueError, match="cov_func holds Coregion"):
        gp.export(idata, path)
    assert not path.exists()


def test_files(tmp_path, monkeypatch):
    gp, idata = fitted(sgp.ExactMarginal)
    path = gp.export(idata, str(tmp_path / "gp.npz"), progressbar=False)
    loaded = sgp.load_predictor(path)
    with pytest.raises(ValueError, match=r"Xnew must have shape \(n, 2\), got \(3,\)"):
        loaded.predict([1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="1 values that are NaN"):
        loaded.predict([[1.0, np.nan]])
    with pytest.raises(ValueError, match="masked values"):
        loaded.predict(np.ma.masked_array([[1.0, -9999.0]], [[False, True]]))
    dates = np.array([["2020-01-01", "2021-01-01"]], "M8[D]")
    for wrong in ([["1", "0"]], np.array([[1.0, pd.NA]]), np.array([[1.0, "a"]], object), dates):
        with pytest.raises(TypeError, match="Xnew must be numeric"):
            loaded.predict(wrong)
    other, text = tmp_path / "other.npz", tmp_path / "other.txt"
    np.savez(other, mean=1.0)
    text.write_text("mean, sd")
    np.save(tmp_path / "array.npy", X)
    for foreign in (other, text, tmp_path / "array.npy"):
        with pytest.raises(ValueError, match="is no file of gp.export"):
            sgp.load_predictor(foreign)
    monkeypatch.setattr("pymc_scalable_gp.core.export.FORMAT", 0)
    with pytest.raises(ValueError, match="in another layout"):
        sgp.load_predictor(gp.export(idata, path, progressbar=False))
    monkeypatch.setattr("pymc_scalable_gp.core.export._MOST_BYTES", 400_000)
    with pytest.raises(ValueError, match="give num_samples=10 or fewer, or take a class"):
        gp.export(idata, path, progressbar=False)


def test_too_large_for_a_file_even_for_one_draw(monkeypatch, tmp_path):
    """Said before a factor of all rows is taken, and without a number of draws that would not do."""
    gp, idata = fitted(sgp.ExactMarginal)
    monkeypatch.setattr("pymc_scalable_gp.core.export._MOST_BYTES", 8 * len(X) ** 2 - 1)
    monkeypatch.setattr("pymc_scalable_gp.core.export.with_progress", None)  # over draws
    with pytest.raises(
        ValueError, match="a file may hold: take a class with inducing points, without exact"
    ):
        gp.export(idata, tmp_path / "gp", exact=True, progressbar=False)
