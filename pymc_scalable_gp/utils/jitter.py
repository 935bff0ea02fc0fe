"""What is added to the diagonals of matrices that are singular to rounding, by what they are."""

import pytensor.tensor as pt

# Kernel matrices of many rows or inducing points: a share of the mean variance, or of each.
KERNEL_JITTER = 1e-8

# Of points that training moves, and may move together, and residuals of a latent function, which may
# vanish: a share of the prior variance. pm.gp adds the same.
LOOSE_JITTER = 1e-6

# Gram matrices of few functions, such as the nodes of one column: a share of the trace. Rounding of 200
# rows is 2e-14 of it, but pm.gp's distances are sqrt(r^2 + 1e-12), with which Cosine is indefinite by
# 2e-11 / ls^2 of its variance.
GRAM_JITTER = 1e-10

# Matrices in the coordinates of a Krylov basis, of which rounding makes small eigenvalues negative: a
# share of the trace.
KRYLOV_JITTER = 1e-12

# Matrices that mix frozen features, which lose rank at longer lengthscales than the reference's: a share
# of the prior variance.
MIXING_JITTER = 1e-9


def with_diagonal(K, added):
    """``K + diag(added)`` of a matrix (m, m) and a vector (m,), as one elementwise operation.

    Not by `pt.diag`: in Numba PyTensor 3.3 fuses matrices of one diagonal with sums of these, and then
    puts the diagonal in the sum's place.
    """
    place = pt.arange(K.shape[0])
    return pt.switch(pt.eq(place[:, None], place), K + added, K)


def with_jitter(K, share: float):
    """A kernel matrix K (m, m) with a `share` of each variance added to it.

    Of a mean that is an output's or a group's in other units, it might exceed the variance of others. Where
    a variance is zero to rounding, a share of a millionth of the mean is added.
    """
    variances = pt.diag(K)
    return with_diagonal(K, share * pt.maximum(variances, 1e-6 * variances.mean()))
