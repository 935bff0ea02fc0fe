"""Faults put into the package on purpose, one at a time, each of which some test must see.

``python tests/mutants.py`` applies every mutant of `MUTANTS` to a copy of the tree, runs the tests
that should fail, and reports which did: the score is the share that was killed, below 90% is a
failure. A survivor says that a line can be wrong unseen: it needs a test, or a reason in `reason=`.

The copies run on Python alone (no JAX, and Numba only where a test insists), which the tests of the
back-ends compare with. Processes are forked from one that has imported PyMC already, which
takes longer than most of these tests.
"""

import argparse
import compileall
import importlib
import os
import shlex
import shutil
import signal
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGE = "pymc_scalable_gp"
ENOUGH = 0.9  # share of the mutants that must be killed
SECONDS = 300  # that the tests of one mutant may take
FAILED = 1  # pytest's exit code when a test failed, not when it could not run
# In the copy only: Python is what the other back-ends are compared with.
CONFTEST = f"""
from {PACKAGE} import testing

check = testing.check_op
testing.check_op = lambda *args, **options: check(*args, **(options | {{"modes": ()}}))


def pytest_collection_modifyitems(items):
    items[:] = [
        item for item in items
        if not hasattr(item, "callspec") or item.callspec.params.get("mode") not in ("NUMBA", "JAX")
    ]
"""


class Mutant(NamedTuple):
    """A fault: `old`, which stands once in a module, and the tests, named from tests/ on, to see it."""

    file: str
    old: str
    new: str
    tests: str
    reason: str = ""  # why it may survive


MUTANTS = [
    Mutant(*fields)
    for fields in (
        (
            "core/likelihoods/summaries.py",
            "return _holds(y, self.y) and (self.X is None or _holds(X, self.X))",
            "return self.X is None or _holds(X, self.X)",
            "methods/grief/test_gp.py -k test_set_data_never_gives_the_old_prediction",
        ),
        (
            "core/likelihoods/summaries.py",
            "return _holds(y, self.y) and (self.X is None or _holds(X, self.X))",
            "return _holds(y, self.y)",
            "core/likelihoods/test_base.py -k test_every_row_is_guarded",
        ),
        (
            "core/likelihoods/summaries.py",
            "same = _same(y, self.y) if self.X is None else _same(y, self.y) & _same(X, self.X)",
            "same = pt.constant(True) if self.X is None else _same(X, self.X)",
            "core/likelihoods/test_base.py -k test_every_row_is_guarded",
        ),
        (
            "core/likelihoods/summaries.py",
            "same = _same(y, self.y) if self.X is None else _same(y, self.y) & _same(X, self.X)",
            "same = _same(y, self.y)",
            "core/likelihoods/test_base.py -k test_every_row_is_guarded",
        ),
        (
            "core/likelihoods/summaries.py",
            "return rows & pt.eq(tensor[:count], kept[:count]).all()",
            "return rows & pt.eq(tensor[:count:16], kept[:count:16]).all()",
            "core/likelihoods/test_base.py -k test_every_row_is_guarded",
        ),
        (
            "core/likelihoods/summaries.py",
            "(n - k) * pt.log(noise)",
            "n * pt.log(noise)",
            "methods/grief/test_gp.py -k test_all_paths_agree_at_unit_weights",
        ),
        (
            "core/likelihoods/summaries.py",
            "rest / noise + n * _LOG_2PI",
            "rest / noise + k * _LOG_2PI",
            "methods/grief/test_gp.py -k test_all_paths_agree_at_unit_weights",
        ),
        (
            "core/likelihoods/summaries.py",
            "pt.sqrt(weights * noise / spread)",
            "pt.sqrt(weights / spread)",
            "methods/grief/test_gp.py -k test_prediction_does_not_depend_on_the_path",
        ),
        (
            "core/likelihoods/summaries.py",
            "outside = beyond * (_LOG_2PI + pt.log(noise)) + rest / noise",
            "outside = beyond * (_LOG_2PI + pt.log(noise))",
            "methods/grief/test_gp.py -k test_all_paths_agree_at_unit_weights",
        ),
        (
            "core/likelihoods/summarized.py",
            "Snapshot(inputs, np.array(data.y.value), ",
            "Snapshot(inputs, data.y.value, ",
            "core/likelihoods/test_base.py -k test_the_guard_keeps_a_copy_of_the_data",
        ),
        (
            "core/likelihoods/summarized.py",
            "np.array(data.X.value) if data.X.mutable",
            "data.X.value if data.X.mutable",
            "core/likelihoods/test_base.py -k test_the_guard_keeps_a_copy_of_the_data",
        ),
        (
            "core/likelihoods/summaries.py",
            "if snapshot.matches(X, y):",
            "if True:",
            "methods/grief/test_gp.py -k test_set_data_never_gives_the_old_prediction",
        ),
        (
            "core/likelihoods/summarized.py",
            'if data.approx != "DTC" or data.sigma.ndim:',
            'if data.approx != "DTC":',
            "methods/softki/test_gp.py -k test_full_path_where_something_of_size_n_is_free",
        ),
        (
            "core/likelihoods/summaries.py",
            "max() > _ORTHOGONAL",
            "max() > 1e9",
            "core/rows/test_statistics.py -k test_a_rotation_belongs_to_its_rows",
        ),
        (
            "core/likelihoods/summaries.py",
            'beyond = np.linalg.qr(found, mode="complete")[0][:, count:].T @ rest',
            "beyond = rest",
            "core/rows/test_statistics.py -k test_a_basis_rotated_by_statistics",
        ),
        (
            "core/features/singular.py",
            "keep = values > SINGULAR_CUTOFF * values[0]",
            "keep = values >= 0.0",
            "methods/grief/test_gp.py -k test_rotation_drops_directions",
        ),
        (
            "core/likelihoods/summaries.py",
            "projected = cross / singular.values",
            "projected = cross / 1.0",
            "methods/grief/test_gp.py -k test_all_paths_agree_at_unit_weights",
        ),
        (
            "core/likelihoods/summaries.py",
            "beyond = outside[:, -1] - pt.dot(outside[:, :-1], beta)",
            "beyond = outside[:, -1]",
            "core/rows/test_statistics.py -k test_the_density_is_that_of_the_rows",
        ),
        (
            "core/rows/triangle.py",
            "self._gram = top.T @ top",
            "self._gram = 0.0 * (top.T @ top)",
            "core/rows/test_triangle.py -k test_blocks_do_not_matter",
        ),
        (
            "core/rows/triangle.py",
            "while len(rows) and self._gram is None:",
            "while len(rows):",
            "core/rows/test_triangle.py -k test_blocks_do_not_matter",
            "QR goes on where the Gram matrix would: the same numbers, at twice the work",
        ),
        (
            "core/rows/triangle.py",
            "if left.size and left.min() < _LEAST_LEFT:",
            "if left.size and left.min() < -1e9:",
            "core/rows/test_triangle.py -k test_what_rounding_swamps",
        ),
        (
            "core/rows/triangle.py",
            "keep = values > SINGULAR_CUTOFF * values[0]",
            "keep = values >= 0.0",
            "core/rows/test_triangle.py -k test_taking_rows_away_of_dependent_columns",
        ),
        (
            "core/rows/statistics.py",
            "if difference:",
            "if False:",
            "core/rows/test_statistics.py -k test_statistics_of_another_basis",
        ),
        (
            "core/rows/statistics.py",
            'if int(file["format"]) != _FORMAT:',
            "if False:",
            "core/rows/test_statistics.py -k test_saved_and_loaded",
        ),
        (
            "core/rows/statistics.py",
            "low=np.minimum(self.low, other.low),",
            "low=self.low,",
            "core/rows/test_statistics.py -k test_sums_and_differences",
        ),
        (
            "core/likelihoods/statistics_rows.py",
            "difference = basis.mark.difference(statistics.mark)",
            "difference = None",
            "core/rows/test_statistics.py -k test_statistics_of_another_basis",
        ),
        (
            "core/likelihoods/statistics_rows.py",
            "gp.feature_map.covering(statistics.low, statistics.high)",
            "gp.feature_map",
            "core/rows/test_statistics.py -k test_the_range_is_that_of_the_rows",
        ),
        (
            "core/rows/collect.py",
            "start = kept.resume(source.size)",
            "start = kept.resume(source.size) and 0",
            "core/rows/test_statistics.py -k test_a_pass_goes_on_from_its_checkpoint",
        ),
        (
            "core/rows/collect.py",
            "values[:, -1] = block.y[rows] - values[:, -1]",
            "values[:, -1] = block.y[rows]",
            "core/rows/test_statistics.py -k test_the_density_is_that_of_the_rows",
        ),
        (
            "core/data/inputs.py",
            "bad = np.flatnonzero(~(np.isfinite(X).all(axis=1) & np.isfinite(y)))",
            "bad = np.flatnonzero(~np.isfinite(X).all(axis=1))",
            "core/rows/test_statistics.py -k test_bad_sources",
        ),
        (
            "methods/grief/frozen.py",
            "ratio = self.grid.term.scale / self.scale",
            "ratio = self.grid.term.scale / 1.0",
            "methods/grief/test_frozen.py -k test_the_reference_is_grief",
        ),
        (
            "core/likelihoods/precision.py",
            'likelihood.missed(X, phi) if data.approx == "FITC" else',
            "",
            "core/checking/test_loo.py -k test_the_precision_is_that_of_the_density",
        ),
        (
            "methods/kmcg/likelihood.py",
            "if self.basis.rows is not None or n > DENSE_ROWS:",
            "if n > DENSE_ROWS:",
            "core/checking/test_loo.py -k test_what_has_no_closed_form",
        ),
        (
            "methods/grief/frozen.py",
            "root = stacked_product(turn, stacked_cholesky(inner + jitter))",
            "root = stacked_product(turn, stacked_cholesky(inner + 1e4 * jitter))",
            "methods/grief/test_frozen.py -k 'test_the_reference or test_more_features'",
        ),
        (
            "core/checking/loo.py",
            "if len(draws) < FEWEST:",
            "if False:",
            "core/checking/test_loo.py -k test_what_has_no_closed_form",
        ),
        (
            "core/data/draws.py",
            "num_samples >= count else num_samples",
            "num_samples > count else num_samples - 1",
            "core/checking/test_check.py -k test_a_poor_approximation",
        ),
        (
            "core/vecchia/predictor.py",
            "return (X[rows], phi[rows],",
            "return (0.0 * X[rows], phi[rows],",
            "methods/vecchia/test_vecchia.py -k inputs_with_a_prior",
        ),
        (
            "core/checking/check.py",
            "known.data.feature_map if isinstance(known, Likelihood) else known.prediction_map()",
            "known.prediction_map()",
            "core/checking/test_check.py -k weights_and_tasks",
        ),
        (
            "core/rows/subsamples.py",
            "X / np.where(spread > 0.0, spread, 1.0)",
            "X",
            "core/rows/test_subsamples.py",
        ),
        (
            "core/rows/subsamples.py",
            "place = round(len(rows) * left / k)",
            "place = left",
            "core/rows/test_subsamples.py",
        ),
        (
            "methods/kmcg/likelihood.py",
            '"residual": residuals[:, -1].max()',
            '"residual": residuals[:, -1].mean()',
            "core/checking/test_check.py -k test_a_likelihood_without_subsamples",
        ),
        (
            "core/likelihoods/precision.py",
            "return 0.5 * (logdet - quad - len(rows) * np.log(2.0 * np.pi))",
            "return 0.5 * (logdet + quad - len(rows) * np.log(2.0 * np.pi))",
            "core/checking/test_loo.py -k test_it_is_what_a_fit_without",
        ),
        (
            "core/vecchia/precision.py",
            "[:, np.argsort(self._order)]",
            "[:, np.arange(len(self._order))]",
            "core/checking/test_loo.py -k test_the_precision_is_that_of_the_density",
        ),
        (
            "core/vecchia/precision.py",
            "kept = there[:, None, :] & (own < n)[:, :, None]",
            "kept = there[:, None, :] & (own < 2 * n)[:, :, None]",
            "core/checking/test_loo.py -k test_the_precision_is_that_of_the_density",
        ),
        (
            "core/checking/check.py",
            'psislw(dim="sample")\n    weights = np.exp(log_weights',
            'psislw(dim="sample")\n    weights = np.exp(-log_weights',
            "core/checking/test_check.py -k test_the_weights_go_towards",
        ),
        (
            "core/checking/check.py",
            "if len(gap) >= FEWEST and",
            "if len(gap) >= 2 and",
            "core/checking/test_check.py -k a_few_draws",
        ),
        (
            "core/checking/verdict.py",
            'if check.attrs["draws"] < FEWEST and',
            "if False and",
            "core/checking/test_check.py -k a_few_draws",
        ),
        (
            "core/checking/check.py",
            "xr.DataArray(-gap,",
            "xr.DataArray(gap,",
            "core/checking/test_check.py -k test_the_weights_go_towards",
        ),
        (
            "core/checking/comparison.py",
            "sigma = known.sigma if known.sigma.ndim == 0 else known.sigma[rows]",
            "sigma = known.sigma if known.sigma.ndim == 0 else known.sigma[: len(rows)]",
            "core/checking/test_check.py -k test_its_figures_are_those",
        ),
        (
            "core/checking/check.py",
            'spread = np.sqrt(found["var"] + found["noise"][:, None, None])',
            'spread = np.sqrt(found["var"])',
            "core/checking/test_check.py -k test_its_figures_are_those",
        ),
        (
            "ops/_lanczos_steps.py",
            "NEGLIGIBLE = 1e-11",
            "NEGLIGIBLE = 0.0",
            "methods/kmcg/test_gp.py -k test_gradient_on_a_square_grid",
        ),
        (
            "core/checking/verdict.py",
            'if not missing <= LIMITS["missing"]:',
            "if False:",
            "core/checking/test_check.py -k test_a_poor_approximation",
        ),
        (
            "core/checking/verdict.py",
            '    compared = "logp_all" in check\n',
            "    compared = True\n",
            "core/checking/test_check.py -k test_a_likelihood_without_subsamples",
        ),
        (
            "core/checking/verdict.py",
            'return f"{name} moves by {by:+.2f} posterior sds{tail}", near',
            'return f"{name} moves by {by:+.2f} posterior sds{tail}", True',
            "core/checking/test_check.py -k test_all_rows_beside",
        ),
        (
            "core/checking/verdict.py",
            '(np.isnan(k_hat) and lost <= LIMITS["even"])',
            "np.isnan(k_hat)",
            "core/checking/test_check.py -k test_what_is_not_finite",
        ),
        (
            "core/checking/comparison.py",
            "neighbors = max(neighbors, 2 * known.settings.neighbors)",
            "neighbors = neighbors",
            "core/checking/test_check.py -k test_a_reference_has_more",
        ),
        (
            "core/checking/comparison.py",
            "values.sum() - np.cumsum(values)",
            "values.sum() - np.cumsum(values) + values",
            "core/checking/test_check.py -k test_how_many_features",
        ),
        (
            "core/checking/check.py",
            "and known.data.weights is None",
            "",
            "core/checking/test_check.py -k test_weights_and_tasks",
        ),
        (
            "methods/softki/features.py",
            "return not self.stationary or bool(((self.low <= X) & (self.high >= X)).all())",
            "return True",
            "methods/softki/test_gp.py -k test_new_inputs_beyond_the_range",
        ),
        (
            "core/checking/loo.py",
            "logp.azstats.psislw",
            "(-logp).azstats.psislw",
            "core/checking/test_loo.py -k test_draws_are_weighted",
        ),
        (
            "methods/softki/batches.py",
            "keep = ~np.isin(rows, self._skipped, assume_unique=True)",
            "keep = rows >= 0",
            "methods/softki/test_batches.py -k test_an_epoch_has_every_row",
        ),
        (
            "methods/softki/batches.py",
            "(rng.random(len(rows)) * (rows + 1)).astype(int)",
            "(rng.random(len(rows)) * (rows[-1] + 1) / 2).astype(int)",
            "methods/softki/test_batches.py -k test_the_sample_is_as_likely",
        ),
        (
            "core/features/feature_map.py",
            "part.missed(X, phi[:, start:stop])",
            "part.missed(X, phi)",
            "core/test_front_ends.py -k test_variance_of_a_sum_counts_what_each_part_misses",
        ),
        (
            "core/features/feature_map.py",
            "return pt.maximum(self.kernel_diag(X) - (phi**2).sum(axis=1), 0.0)",
            "return pt.maximum(self.kernel_diag(X) - 0.5 * (phi**2).sum(axis=1), 0.0)",
            "core/test_gp.py -k test_predict_against_the_dense_posterior",
        ),
        (
            "core/features/feature_map.py",
            "return Assert(message)(rows, inside)",
            "return rows",
            "core/test_front_ends.py -k test_a_latent_function_beyond_its_range_is_refused",
        ),
        (
            "core/features/feature_map.py",
            "inside = (X >= low - margin).all() & (X <= high + margin).all()",
            "inside = (X >= low - margin).all()",
            "core/test_front_ends.py -k test_a_latent_function_beyond_its_range_is_refused",
        ),
        (
            "core/features/feature_map.py",
            "return low.max(axis=0), high.min(axis=0)",
            "return low.min(axis=0), high.max(axis=0)",
            "core/features/test_feature_map.py",
        ),
        (
            "core/features/coefficients.py",
            "/ (1.0 + pt.sqrt(",
            "/ (2.0 + pt.sqrt(",
            "core/features/test_coefficients.py",
        ),
        (
            "core/features/coefficients.py",
            "root = self.root[columns] if self.deflated else self.root[..., columns]",
            "root = self.root[..., columns]",
            "core/features/test_coefficients.py",
        ),
        (
            "core/likelihoods/base.py",
            "sd = pt.sqrt(feature_map.missed(data.tensor, phi) + variance)",
            "sd = pt.sqrt(0.0 * feature_map.missed(data.tensor, phi) + variance)",
            "core/test_front_ends.py -k conditional",
        ),
        (
            "ops/_numba.py",
            "if a.shape[axis] != 1 and a.strides[axis] != step:",
            "if False:",
            "ops/test_numba.py -k test_every_layout",
        ),
        (
            "ops/_numba.py",
            'if not (same and (want.layout == "A" or have.layout == "C" or have.ndim == 0)):',
            "if False:",
            "ops/test_numba.py -k test_machine_code",
        ),
        (
            "core/vecchia/normal.py",
            "lowrank_logp(phi, pt.constant(1.0), residual).logp - found.half_logdet()",
            "lowrank_logp(phi, pt.constant(1.0), residual).logp",
            "methods/vecchia/test_vecchia.py -k test_all_neighbors_or_one_block",
        ),
        (
            "core/vecchia/normal.py",
            "draws = mu + rows[pt.argsort(order)].T",
            "draws = mu + rows[order].T",
            "methods/vecchia/test_vecchia.py -k test_draws_of_the_distribution",
        ),
        (
            "core/vecchia/likelihood.py",
            "return self.data.residual[self.plan.order]",
            "return self.data.residual",
            "methods/vecchia/test_vecchia.py -k test_predictions_with_all_neighbors",
        ),
        (
            "core/vecchia/likelihood.py",
            "(sigma if sigma.ndim == 0 else sigma[self.plan.order])",
            "sigma",
            "methods/vecchia/test_vecchia.py -k test_sigma_for_each_row",
        ),
        (
            "core/vecchia/likelihood.py",
            "return JITTER * self.feature_map.kernel_diag(self.inputs)",
            "return 1e3 * JITTER * self.feature_map.kernel_diag(self.inputs)",
            "methods/vecchia/test_latent.py -k test_with_all_neighbors",
        ),
        (
            "core/vecchia/likelihood.py",
            "return self.residual[pt.argsort(self.plan.order)]",
            "return self.residual[self.plan.order]",
            "methods/vecchia/test_latent.py -k test_with_all_neighbors",
        ),
        (
            "core/vecchia/likelihood.py",
            "self.neighbors.set_value(ordering.neighbors)",
            "pass",
            "methods/vecchia/test_vecchia.py -k test_rebuild_takes_the_neighbors",
        ),
        (
            "core/vecchia/likelihood.py",
            "return pt.all(pt.eq(X[:count], known[:count]))",
            "return pt.all(pt.eq(count, count))",
            "methods/vecchia/test_vecchia.py -k test_replaced_targets_count",
        ),
        (
            "core/vecchia/predictor.py",
            "alone = feature_map.excess * prior + known.slack",
            "alone = 1e-12 * prior",
            "methods/vecchia/test_vecchia.py",
            "a guard against rounding where features and neighbours leave a new row no variance",
        ),
        (
            "core/vecchia/predictor.py",
            "pt.maximum(found.L[:, 0, 0] ** 2 - added, 0.0)",
            "found.L[:, 0, 0] ** 2",
            "methods/vecchia/test_vecchia.py -k test_predictions_with_all_neighbors",
        ),
        (
            "core/vecchia/likelihood.py",
            "return cls(neighbors, block, 2 * neighbors)",
            "return cls(neighbors, block, neighbors)",
            "methods/vecchia/test_vecchia.py -k test_new_rows_have_neighbors_of_their_own",
        ),
        (
            "core/vecchia/neighbors.py",
            "return Ordering(order, found, block, min(pred_neighbors, 2 * n), metric, placed)",
            "return Ordering(order, found, block, neighbors, metric, placed)",
            "methods/vecchia/test_vecchia.py -k test_new_rows",
        ),
        (
            "core/vecchia/predictor.py",
            "phi = phi - pt.matmul(A, known.phi[near])[:, 0]",
            "phi = phi - 0.0 * pt.matmul(A, known.phi[near])[:, 0]",
            "methods/vecchia/test_vecchia.py -k test_predictions_with_all_neighbors",
        ),
        (
            "core/vecchia/predictor.py",
            "return moved[:, 0], phi - moved[:, 1:], own",
            "return moved[:, 0], phi, own",
            "methods/vecchia/test_vecchia.py -k test_joint_predictions_hold_together",
        ),
        (
            "core/vecchia/predictor.py",
            "new = pt.constant(np.where(near >= n, near - n, -1))",
            "new = pt.constant(np.full_like(near, -1))",
            "methods/vecchia/test_vecchia.py -k test_joint_predictions_hold_together",
        ),
        (
            "core/vecchia/neighbors.py",
            "before = candidates[candidates < limits[place]]",
            "before = candidates",
            "core/vecchia/test_neighbors.py -k test_neighbors_come_before",
        ),
        (
            "core/vecchia/neighbors.py",
            "np.minimum(square, ((placed[near] - row) ** 2).sum(axis=1), out=square)",
            "square[:] = ((placed[near] - row) ** 2).sum(axis=1)",
            "core/vecchia/test_neighbors.py -k test_neighbors_come_before",
        ),
        (
            "methods/vecchia/gp.py",
            "known.prediction_map().move(self._spec.points(known.present_inputs(), point))",
            "pass",
            "methods/vecchia/test_vecchia.py -k test_rebuild_takes_the_neighbors",
        ),
        (
            "methods/softki/gp.py",
            "return NystromMap(self.cov_func, found.points.tensor, found.low, found.high)",
            "return found",
            "methods/vecchia/test_vecchia.py -k test_every_class",
        ),
        (
            "ops/_vecchia_batches.py",
            "Z = np.concatenate([0.5 * G - half @ A, half], axis=2)",
            "Z = np.concatenate([0.5 * G, half], axis=2)",
            "ops/test_vecchia.py -k test_factor",
        ),
        (
            "ops/_vecchia_batches.py",
            "L_bar[part] = -np.tril(T @ white.transpose(0, 2, 1))",
            "L_bar[part] = -(T @ white.transpose(0, 2, 1))",
            "ops/test_vecchia.py -k test_whiten",
        ),
        (
            "core/gp.py",
            "variance = self._noise(known, pred_noise) + jitter",
            "variance = 0.0 * self._noise(known, pred_noise) + jitter",
            "core/test_front_ends.py -k test_noise_and_jitter_of_the_conditional",
        ),
        (
            "core/gp.py",
            "variance = self._noise(known, pred_noise) + jitter",
            "variance = self._noise(known, pred_noise)",
            "core/test_front_ends.py -k test_noise_and_jitter_of_the_conditional",
        ),
        (
            "core/gp.py",
            "return known.sigma**2",
            "return known.sigma",
            "core/test_gp.py -k test_diag_pred_noise_and_the_model_context",
        ),
        (
            "core/gp.py",
            "if seen == state:",
            "if True:",
            "methods/grief/test_gp.py -k test_set_data_never_gives_the_old_prediction",
        ),
        (
            "core/likelihoods/predictor.py",
            "var = missed + state.noise\n",
            "var = missed\n",
            "core/test_gp.py -k test_diag_pred_noise_and_the_model_context",
        ),
        (
            "core/likelihoods/predictor.py",
            "cov = np.diag(missed + state.noise)",
            "cov = np.diag(missed)",
            "core/test_gp.py -k test_diag_pred_noise_and_the_model_context",
        ),
        (
            "core/likelihoods/predictor.py",
            "second[rows] += shift * (mean - first[rows])",
            "second[rows] += shift**2",
            "core/test_gp.py -k test_predict_posterior_is_the_mixture_of_the_draws",
        ),
        (
            "core/likelihoods/predictor.py",
            "spread[rows] += var",
            "spread[rows] = var",
            "core/test_gp.py -k test_predict_posterior_is_the_mixture_of_the_draws",
        ),
        (
            "core/likelihoods/predictor.py",
            " + means.var(axis=1)",
            "",
            "core/test_gp.py -k test_predict_posterior_with_fixed_features",
        ),
        (
            "core/likelihoods/predictor.py",
            "own = np.sqrt(missed + state.noise) * rng",
            "own = (missed + state.noise) * rng",
            "core/test_front_ends.py -k test_samples_of_the_function",
        ),
        (
            "core/likelihoods/predictor.py",
            "return state.coef + root.T @ rng.standard_normal(len(root))",
            "return state.coef + root @ rng.standard_normal(len(root))",
            "core/test_front_ends.py -k test_samples_of_the_function",
        ),
        (
            "core/likelihoods/predictor.py",
            "np.sqrt(np.maximum(1.0 - s**2, 0.0))",
            "np.sqrt(np.maximum(1.0 - s, 0.0))",
            "core/features/test_coefficients.py",
        ),
        (
            "core/data/draws.py",
            "np.asarray(variable.transpose(*order, ...))",
            "np.asarray(variable)",
            "core/test_front_ends.py -k test_posteriors_of_every_shape",
        ),
        (
            "core/data/draws.py",
            "rng.permutation(total)[:num_samples]",
            "rng.permutation(total)",
            "core/test_gp.py -k test_predict_posterior_of_some_draws",
        ),
        (
            "core/fit/hyperparameters.py",
            "return self.height, np.zeros_like(theta)",
            "return value, gradient",
            "core/fit/test_hyperparameters.py -k test_a_wall_where_the_objective_is_not_finite",
        ),
        (
            "core/fit/hyperparameters.py",
            "if value < self.value:",
            "if True:",
            "core/fit/test_hyperparameters.py -k test_the_best_point_that_was_met",
        ),
        (
            "core/fit/hyperparameters.py",
            "self.height = value + abs(value) + 10.0",
            "self.height = value",
            "core/fit/test_hyperparameters.py -k wall",
        ),
        (
            "core/fit/hyperparameters.py",
            "[(v - REACH, v + REACH) for v in start]",
            "None",
            "core/fit/test_hyperparameters.py -k test_no_step_beyond_the_reach",
        ),
        (
            "core/fit/hyperparameters.py",
            "jacobian=False",
            "jacobian=True",
            "core/fit/test_hyperparameters.py -k test_the_prior_is_that_of_the_untransformed_values",
        ),
        (
            "core/fit/subset_map.py",
            "prior = hyper.log_prior(theta)",
            "prior = 0.0 * hyper.log_prior(theta)",
            "core/fit/test_subset_map.py -k test_the_mode_of_the_posterior",
        ),
        (
            "core/fit/subset_map.py",
            "(np.outer(alpha, alpha) - inverse), -alpha)",
            "(np.outer(alpha, alpha) - inverse), alpha)",
            "core/fit/test_subset_map.py -k test_a_parameter_of_the_mean",
        ),
        (
            "core/data/mean.py",
            "if mean.ndim == 2 and mean.type.shape[1] in (1, None):",
            "if False:",
            "core/test_front_ends.py -k test_a_column_of_means_does_not_broadcast",
        ),
        (
            "core/data/inputs.py",
            "if length != rows:",
            "if False:",
            "core/test_front_ends.py -k test_dims_of_another_length",
        ),
        (
            "core/data/inputs.py",
            "if len(names) != 1:",
            "if False:",
            "core/test_front_ends.py -k test_dims_of_another_length",
        ),
        (
            "utils/graphs.py",
            'getattr(v.tag, "fixed", False)):\n                return False',
            'getattr(v.tag, "fixed", False)):\n                return True',
            "utils/test_graphs.py",
        ),
        (
            "utils/graphs.py",
            "elif isinstance(v.owner.op, RandomVariable | RNGConsumerOp):\n            return False",
            "elif isinstance(v.owner.op, RandomVariable | RNGConsumerOp):\n            return True",
            "utils/test_graphs.py",
        ),
        (
            "core/likelihoods/base.py",
            "penalty = 0.5 * (missed / noise).sum()",
            "penalty = -0.5 * (missed / noise).sum()",
            "methods/skip/test_tasks.py -k test_the_sum_over_tasks_is_the_density",
        ),
        (
            "core/likelihoods/base.py",
            'if not self.X.mutable or self.approx == "FITC"',
            'if self.X.mutable or self.approx == "FITC"',
            "core/test_front_ends.py -k test_a_marginal_without_correction",
        ),
        (
            "core/likelihoods/lowrank_normal.py",
            "pt.maximum(kdiag - (scaled**2).sum(axis=-1), 0.0)",
            "(kdiag - (scaled**2).sum(axis=-1))",
            "core/likelihoods/test_lowrank_normal.py -k test_draws_where_the_features_exceed",
        ),
        (
            "core/likelihoods/lowrank_normal.py",
            "pt.sqrt(variance) * e",
            "variance * e",
            "core/likelihoods/test_lowrank_normal.py -k test_draws_have_the_mean_and_covariance",
        ),
        (
            "core/latent.py",
            "if not data.mutable and depends_only_on([part], [data.tensor]):",
            "if depends_only_on([part], [data.tensor]):",
            "core/likelihoods/test_base.py -k test_replaced_inputs_of_a_latent_function",
        ),
        (
            "core/data/inputs.py",
            "    if count:\n        rows = np.ma",
            "    if False:\n        rows = np.ma",
            "core/data/test_inputs.py -k test_masked_entries_are_refused",
        ),
        (
            "ops/_lanczos_steps.py",
            "            for _ in range(3):\n",
            "            for _ in range(1):\n",
            "ops/test_lanczos.py -k test_the_basis_stays_orthogonal",
            "One pass is enough: the three-term recurrence leaves only rounding along the basis, at "
            "most 1e-3 of a direction that is no breakdown, and a pass squares that. The others are "
            "for operators whose products are less exact.",
        ),
        (
            "ops/_lanczos_steps.py",
            "subtract(w, np.dot(Q[: j + 1].T, h))",
            "pass",
            "ops/test_lanczos.py -k test_the_basis_stays_orthogonal",
        ),
        (
            "ops/_lanczos_steps.py",
            "h_bar[j] += alpha_bar[j]",
            "h_bar[j] -= alpha_bar[j]",
            "ops/test_lanczos.py -k test_against_unrolled_steps",
        ),
        (
            "ops/_lanczos_steps.py",
            "add_multiple(C[j, : j + 1], alpha[j], h_bar)",
            "pass",
            "ops/test_lanczos.py -k test_against_unrolled_steps",
        ),
        (
            "ops/_lowrank_terms.py",
            "if sweep < 2:",
            "if sweep < 1:",
            "ops/test_lowrank_logp.py -k test_the_second_sweep",
        ),
        (
            "ops/_lowrank_terms.py",
            "row_bar += 0.5 * slack * inverse * inverse",
            "row_bar += slack * inverse * inverse",
            "ops/test_lowrank_logp.py -k test_op",
        ),
        (
            "ops/_lowrank_terms.py",
            "slope = -0.5 * inverse * (slack > 0.0)",
            "slope = 0.5 * inverse * (slack > 0.0)",
            "ops/test_lowrank_logp.py -k test_op",
        ),
        (
            "ops/_lowrank_terms.py",
            "return np.maximum(out, 0.0)",
            "return out",
            "ops/test_lowrank_logp.py -k test_op",
        ),
        (
            "ops/_lowrank_terms.py",
            "quad += np.sum(slack)",
            "quad -= np.sum(slack)",
            "ops/test_lowrank_logp.py -k test_op",
        ),
        (
            "ops/_lowrank_terms.py",
            "missed[j] += g *",
            "missed[j] -= g *",
            "ops/test_lowrank_logp.py -k test_op",
        ),
        (
            "ops/lowrank_logp.py",
            "trace = (phi.shape[0] - shrinkage.sum()) / noise",
            "trace = phi.shape[0] / noise",
            "ops/test_lowrank_logp.py -k test_op",
        ),
        (
            "ops/lowrank_logp.py",
            "noise_bar, -alpha * g, kdiag_bar]",
            "noise_bar, alpha * g, kdiag_bar]",
            "ops/test_lowrank_logp.py -k test_op",
        ),
        (
            "ops/lowrank_posterior.py",
            "alpha[:, None] * g - rows[:, None] * coef",
            "alpha[:, None] * g + rows[:, None] * coef",
            "ops/test_lowrank_posterior.py",
        ),
        (
            "ops/lowrank_posterior.py",
            "weights**2, -h * alpha, h",
            "weights**2, h * alpha, h",
            "ops/test_lowrank_posterior.py",
        ),
        (
            "ops/lowrank_posterior.py",
            "return 2.0 * rows, weights_bar",
            "return rows, weights_bar",
            "ops/test_lowrank_posterior.py",
        ),
        (
            "ops/lowrank_posterior.py",
            "- pt.diag(G) / weights",
            "+ pt.diag(G) / weights",
            "ops/test_lowrank_posterior.py",
        ),
        (
            "ops/lowrank_posterior.py",
            "phi_bar = phi_bar - 2.0 * kdiag_bar",
            "phi_bar = phi_bar - kdiag_bar",
            "ops/test_lowrank_posterior.py",
        ),
        (
            "ops/lowrank_posterior.py",
            "variance_bar = variance_bar + bars[4]",
            "pass",
            "ops/test_lowrank_posterior.py",
        ),
        (
            "ops/stationary_kernel.py",
            "-2.0 * WeightedSquares()(X, Z, g)",
            "-1.0 * WeightedSquares()(X, Z, g)",
            "ops/test_stationary_kernel.py -k test_op",
        ),
        (
            "ops/stationary_kernel.py",
            "own = [x.type() for x in inputs]",
            "own = list(inputs)",
            "ops/test_stationary_kernel.py -k test_second_derivatives",
        ),
        (
            "ops/_stationary.py",
            "return -1.5 / (1.0 + 3.0**0.5 * root)",
            "return -1.5 / (1.0 + root)",
            "ops/test_stationary_kernel.py -k test_op",
        ),
        (
            "ops/_numba.py",
            "isinstance(held, Dispatcher)",
            "isinstance(held, int)",
            "ops/test_numba.py -k closure",
        ),
        (
            "cov/evaluate.py",
            "(d <= _FEW or not single)",
            "True",
            "cov/test_evaluate.py -k share",
        ),
        (
            "ops/square_distances.py",
            "2.0 * scale * WeightedSquares",
            "scale * WeightedSquares",
            "ops/test_square_distances.py -k test_op",
        ),
        (
            "ops/square_distances.py",
            "weights * differences(Z, X, scale, g.T)",
            "-weights * differences(Z, X, scale, g.T)",
            "ops/test_square_distances.py -k test_op",
        ),
        (
            "ops/square_distances.py",
            "return [2.0 * h * by_x, ",
            "return [h * by_x, ",
            "ops/test_square_distances.py -k test_second_derivatives",
        ),
        (
            "ops/_distances.py",
            "bar = weights * ((g * weights).sum(axis=0) - g)",
            "bar = weights * (g - (g * weights).sum(axis=0))",
            "ops/test_softmax_interpolation.py -k test_op",
        ),
        (
            "ops/khatri_rao.py",
            "add_product(bars[right, :width], g[j, start:stop], values[left, :width])",
            "pass",
            "ops/test_khatri_rao.py -k test_op",
        ),
        (
            "ops/khatri_rao.py",
            "add_product(bars[left, :width], bars[target, :width], values[right, :width])",
            "pass",
            "ops/test_khatri_rao.py -k test_op",
        ),
        (
            "ops/eigh_sorted.py",
            "gap = values[:, None, :] - values[:, :, None]",
            "gap = values[:, :, None] - values[:, None, :]",
            "ops/test_eigh_sorted.py -k test_op",
        ),
        (
            "ops/stacked_cholesky.py",
            "- 0.5 * pt.eq(",
            "- 0.0 * pt.eq(",
            "ops/test_inverse_cholesky.py -k test_op",
        ),
        (
            "ops/inverse_cholesky.py",
            "return [H_bar + self.jitter * trace",
            "return [H_bar + 0.0 * trace",
            "ops/test_inverse_cholesky.py -k test_op",
        ),
        (
            "ops/whitened_columns.py",
            "P[i, i] *= 0.5",
            "P[i, i] *= 1.0",
            "ops/test_whitened_columns.py -k test_op",
        ),
        (
            "ops/segments.py",
            "return SegmentGram(self.count)(g, W, segment), back",
            "return SegmentGram(self.count)(g, W, segment), 2.0 * back",
            "ops/test_segments.py -k test_times",
        ),
        (
            "ops/hadamard.py",
            "np.dot(_outer(B[start:stop], g), flat.T)",
            "0.5 * np.dot(_outer(B[start:stop], g), flat.T)",
            "ops/test_hadamard.py -k test_apply",
        ),
        (
            "ops/toeplitz.py",
            "lags[1:] += both[: size - m : -1]",
            "pass",
            "ops/test_toeplitz.py -k test_op",
        ),
        (
            "ops/cubic_interpolation.py",
            "[1, 2, 3]",
            "[1, 2, 2]",
            "ops/test_cubic_interpolation.py -k test_op",
        ),
        (
            "ops/stochastic_logdet.py",
            "            g_shift += weight * g_c\n",
            "            g_shift += g_c\n",
            "ops/test_stochastic_logdet.py -k test_value_and_gradient",
        ),
        (
            "ops/stochastic_logdet.py",
            "weight = np.dot(z, z) / count",
            "weight = np.dot(z, z)",
            "ops/test_stochastic_logdet.py -k test_axes_as_probes",
        ),
        (
            "ops/log_quadrature.py",
            "g_beta[j - 1] = 2.0 * np.sum",
            "g_beta[j - 1] = np.sum",
            "ops/test_log_quadrature.py -k test_op",
        ),
        (
            "methods/softki/features.py",
            "lost**4",
            "lost**2",
            "methods/softki/test_gp.py -k test_the_variance_between_range_and_prior",
        ),
        (
            "methods/softki/features.py",
            " * self.decay(X)[:, None]",
            "",
            "methods/softki/test_gp.py -k test_far_from_the_data_the_prior_returns",
        ),
        (
            "methods/softki/steps.py",
            "- prior / rows",
            "- prior / y.shape[0]",
            "methods/softki/test_training.py -k test_the_loss_is_the_batch_density",
        ),
        (
            "methods/kmcg/gp.py",
            "DEFAULT_PROBES = 8",
            "DEFAULT_PROBES = 0",
            "methods/kmcg/test_gp.py -k test_probes_by_default",
        ),
        (
            "methods/kmcg/logdet.py",
            "np.random.default_rng(self.seed)",
            "np.random.default_rng(0)",
            "methods/kmcg/test_gp.py -k test_probes_by_default",
        ),
        (
            "methods/kmcg/krylov_normal.py",
            "same = pt.le((1.0 - _ALIGNED) * length, (Q[:, 0] * residual).sum())",
            "same = pt.constant(True)",
            "methods/kmcg/test_gp.py -k test_targets_that_the_basis_does_not_start_at",
        ),
        (
            "methods/kmcg/krylov_normal.py",
            "logp = logp - nothing - 0.5",
            "logp = logp - 0.5",
            "methods/kmcg/test_gp.py -k test_probes_replace_the_determinant_only",
        ),
        (
            "methods/cholqr/search.py",
            "if factor.objective(self.variational) - prior < self.value():",
            "if True:",
            "methods/cholqr/test_search.py -k test_a_step_that_does_not_lower",
        ),
        (
            "methods/cholqr/pivots.py",
            "drawn = others[self.rng.integers(0, len(others), self.drawn)]",
            "drawn = others[:0]",
            "methods/cholqr/test_pivots.py -k test_random_candidates_find",
        ),
        (
            "methods/cholqr/pivots.py",
            "slack = column @ column / self.noise if variational else 0.0",
            "slack = 0.0",
            "methods/cholqr/test_pivots.py -k test_gain_is_the_fall_of_the_objective",
        ),
        (
            "methods/cholqr/pivots.py",
            "if new is None or factor.gain(new, variational) <= factor.gain(old, variational):",
            "if new is None:",
            "methods/cholqr/test_pivots.py -k test_hundreds_of_swaps_never_raise_the_objective",
        ),
        (
            "core/features/nystrom.py",
            "row = order[np.argmax(left[order] >= left.max() * (1.0 - TIE))]",
            "row = np.argmax(left)",
            "core/features/test_spread.py -k test_the_seed_chooses_among_equal_rows",
        ),
        (
            "methods/skip/leaves.py",
            "return (ValueLeaf if len(values) <= rank else None), values",
            "return None, values",
            "methods/skip/test_leaves.py -k test_continuous_kernels_go_on_between",
        ),
        (
            "methods/skip/leaves.py",
            "    if categorical:\n        return CategoryLeaf, values",
            "    if False:\n        return CategoryLeaf, values",
            "methods/skip/test_leaves.py -k test_a_new_category_is_refused",
        ),
        (
            "methods/skip/leaves.py",
            "return [root * fade[i][:, None] for i, root in enumerate(found)]",
            "return found",
            "methods/skip/test_gp.py -k test_far_from_the_data_the_prior_returns",
        ),
        (
            "methods/skip/task_normal.py",
            "mean = common + v[:, None] * rest",
            "mean = common + rest",
            "methods/skip/test_tasks.py -k test_the_sum_over_tasks_is_the_density",
        ),
        (
            "methods/skip/task_normal.py",
            "penalty = (Z**2).sum() + (v[:, None] * rest**2).sum()",
            "penalty = (Z**2).sum()",
            "methods/skip/test_tasks.py -k test_the_sum_over_tasks_is_the_density",
        ),
        (
            "methods/skip/features.py",
            "(scale if self.task_var is None else scale + self.task_var)",
            "(scale)",
            "methods/skip/test_tasks.py",
        ),
        (
            "methods/grief/eigenfunctions.py",
            "order = np.argsort(-logs, axis=1",
            "order = np.argsort(logs, axis=1",
            "methods/grief/test_gp.py -k test_truncated_features_keep_the_leading_eigenpairs",
        ),
        (
            "methods/grief/grid.py",
            "order = sorted(range(len(cells)), key=cells.__getitem__)",
            "order = range(len(cells))",
            "methods/grief/test_grid.py -k test_share_rank",
        ),
        (
            "methods/grief/grid.py",
            "UNRESOLVED = 1e-5",
            "UNRESOLVED = 1.0",
            "methods/grief/test_grid.py -k test_the_first_set_of_nodes",
        ),
        (
            "methods/grief/gp.py",
            "coef * pt.sqrt(weights)",
            "coef * weights",
            "core/test_gp.py -k test_latent_conditional_and_weights",
        ),
    )
]


def mutated(mutant: Mutant, root=ROOT) -> str:
    """Source with the fault; the old text must stand exactly once in its file."""
    text = (root / PACKAGE / mutant.file).read_text(encoding="utf-8")
    if (count := text.count(mutant.old)) != 1:
        raise ValueError(f"{mutant.file} holds {count} times, not once:\n{mutant.old}")
    if mutant.old == mutant.new:
        raise ValueError(f"{mutant.file}: the mutant changes nothing:\n{mutant.old}")
    return text.replace(mutant.old, mutant.new)


def copy_tree(folder: Path) -> None:
    """Package and tests, compiled to bytecode, with what makes them run on Python alone."""
    ignore = shutil.ignore_patterns("__pycache__")
    for name in (PACKAGE, "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignore)
    shutil.copy(ROOT / "pyproject.toml", folder)
    (folder / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    compileall.compile_dir(str(folder / PACKAGE), quiet=1)


class WithoutJax:
    """A finder of modules that has no JAX. (None in `sys.modules` SciPy would take for the module.)"""

    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        """Nothing for the one name."""
        jax = name.partition(".")[0] == "jax"
        return None if jax else self.finder.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self.finder, name)


def prepare(folder: Path) -> None:
    """Import what is no part of the package, once for all processes; compiled code goes into `folder`."""
    os.environ["PYTENSOR_FLAGS"] = f"mode=FAST_COMPILE,base_compiledir={folder / 'compiled'}"
    sys.dont_write_bytecode = True  # a fault of the same length and second would run the old code
    sys.meta_path[:] = map(WithoutJax, sys.meta_path)
    for name in ("pymc", "pytest", "sklearn.cluster", "arviz", "rich", "better_optimize"):
        importlib.import_module(name)


def run(folder: Path, tests: str, log: Path) -> int | None:
    """Exit code of pytest in a process of its own; None when it took too long."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # idle threads of libraries: no locks
        child = os.fork()
    if child == 0:
        code = 3
        try:
            output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(output, 1), os.dup2(output, 2)
            os.chdir(folder)
            sys.path[:] = [str(folder), *(p for p in sys.path if Path(p).resolve() != ROOT)]
            options = ["-x", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder)]
            code = int(
                importlib.import_module("pytest").main([*options, *shlex.split(f"tests/{tests}")])
            )
        finally:
            os._exit(code)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def kill(mutant: Mutant, folder: Path, log: Path) -> str:
    """What became of the mutant: killed, SURVIVED, or ERROR where its tests did not run."""
    path = folder / PACKAGE / mutant.file
    sound = path.read_text(encoding="utf-8")
    path.write_text(mutated(mutant, folder), encoding="utf-8")
    try:
        code = run(folder, mutant.tests, log)
    finally:
        path.write_text(sound, encoding="utf-8")
    return {0: "SURVIVED", FAILED: "killed", None: "killed"}.get(code, "ERROR")


def is_sound(tests: str, folder: Path, log: Path) -> bool:
    """Whether the tests pass without a fault: only then does their failure say anything."""
    if run(folder, tests, log) == 0:
        return True
    say(f"fails without a fault: {tests}\n{log.read_text(encoding='utf-8')[-3000:]}")
    return False


def say(text: str) -> None:
    """Write a line at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def describe(mutant: Mutant) -> str:
    """One line: file, old and new text."""
    old, new = (" ".join(text.split()) for text in (mutant.old, mutant.new))
    return f"{mutant.file}: {old}  ->  {new or '(nothing)'}"


def main() -> int:
    """Run the mutants asked for; 0 when enough were killed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[""], help="lines of --list that hold one")
    parser.add_argument("--list", action="store_true", help="show the mutants and run nothing")
    parser.add_argument("--sound", action="store_true", help="first run the tests without a fault")
    parser.add_argument("--verbose", action="store_true", help="show the end of each test run")
    given = parser.parse_args()
    chosen = [mutant for mutant in MUTANTS if any(text in describe(mutant) for text in given.only)]
    for mutant in chosen:
        mutated(mutant)
    if given.list or not chosen:
        say("\n".join(map(describe, chosen)) or f"no mutant holds {given.only!r}")
        return 0 if chosen else 1
    left = []
    with tempfile.TemporaryDirectory() as name:
        prepare(Path(name))
        folder, log = Path(name) / "tree", Path(name) / "log"
        copy_tree(folder)
        sound = {}
        for mutant in chosen:
            if given.sound and mutant.tests not in sound:
                sound[mutant.tests] = is_sound(mutant.tests, folder, log)
            told = sound.get(mutant.tests, True)
            found = kill(mutant, folder, log) if told else "ERROR"
            said = log.read_text(encoding="utf-8").splitlines()[-3:]
            left += [] if found == "killed" else [(found, mutant)]
            say(f"{found:<9} {describe(mutant)}")
            if given.verbose:
                say("\n".join(f"    {line}" for line in said))
    score = 1.0 - len(left) / len(chosen)
    say(f"\n{len(chosen) - len(left)} of {len(chosen)} killed, {score:.0%}")
    for found, mutant in left:
        say(f"{found}: {describe(mutant)}\n  {mutant.reason or 'tests: ' + mutant.tests}")
    errors = any(found == "ERROR" for found, _ in left)
    return 0 if score >= ENOUGH and not errors else 1


if __name__ == "__main__":
    sys.exit(main())
