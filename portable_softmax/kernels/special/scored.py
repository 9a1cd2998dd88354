"""Entry points of the softmax of scores and its gradient, which have more operands and numbers than the plain ones."""

import triton
import triton.language as tl

from portable_softmax.kernels.scores import number_of
from portable_softmax.kernels.softmax import walk


@triton.jit
def scored_kernel(
    y_ptr, x_ptr, mask_ptr, factors_ptr, sinks_ptr,  # of an operand that there is not, any pointer
    n_lines, length, y_line, x_line, n_matrices, y_matrix, x_matrix, n_blocks, y_block, x_block,  # see softmax_kernel
    mask_col, mask_row, mask_matrix, mask_block,  # the mask's strides in elements, 0 along what it is the same for
    factor,  # the bits of the factor of all rows, where they have none of their own
    words_ptr, launch, FORM: tl.constexpr,
):  # fmt: skip
    """Computes the softmax of the scores of each row of x."""
    factor = factors_ptr if FORM.by_row else number_of(factor, FORM)
    walk(
        y_ptr, x_ptr, mask_ptr, n_lines, length, y_line, x_line, n_matrices, y_matrix, x_matrix, n_blocks, y_block, x_block,
        mask_col, mask_row, mask_matrix, mask_block, factor, sinks_ptr, words_ptr, launch, FORM,
    )  # fmt: skip


@triton.jit
def scored_backward_kernel(
    dx_ptr, dy_ptr, y_ptr, factors_ptr, n_lines, length, dx_line, dy_line, n_matrices, dx_matrix, dy_matrix,
    n_blocks, dx_block, dy_block, factor, words_ptr, launch, FORM: tl.constexpr,
):  # fmt: skip
    """Computes the gradient of x from that of y, but for the derivative of the cap."""
    factor = factors_ptr if FORM.by_row else number_of(factor, FORM)
    walk(
        dx_ptr, dy_ptr, y_ptr, n_lines, length, dx_line, dy_line, n_matrices, dx_matrix, dy_matrix,
        n_blocks, dx_block, dy_block, 0, 0, 0, 0, factor, None, words_ptr, launch, FORM,
    )  # fmt: skip
