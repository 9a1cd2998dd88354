"""Configurations of an autotuner that a device can run."""

import logging
from functools import partial

import pytest
import torch
import triton
from example_kernels import add_kernel
from launched_kernels import matmul
from sweep import mostly_slow

from portable_softmax import GridError, ProfileError, fits, inspect_kernel

ARGUMENTS = {**dict.fromkeys("abc", "*fp16:16"), **dict.fromkeys("MNK", 1024)}
ARGUMENTS |= dict.fromkeys(("sam", "sbk", "scm"), 1024) | dict.fromkeys(("sak", "sbn", "scn"), 1)
CONFIGS = [  # blocks, warps, stages
    triton.Config({"BM": m, "BN": n, "BK": k}, num_warps=warps, num_stages=stages)
    for m, n, k, warps, stages in (
        (32, 32, 32, 4, 2),
        (64, 64, 64, 4, 4),
        (128, 128, 128, 4, 3),
        (64, 128, 16, 1, 2),
    )
]
SMALL, *_, SPILLS = CONFIGS


def kept_of(name, configs=CONFIGS, **choices):
    return partial(fits, kernel=matmul, device=name, grid=None, **choices)(configs, ARGUMENTS)


@pytest.mark.parametrize("name", mostly_slow(("nvidia/rtx-5090", "amd/mi300x"), "nvidia/rtx-5090".__eq__))
def test_what_fits_and_does_not_spill_is_kept_in_its_order(name):
    options = [{"num_warps": config.num_warps, "num_stages": config.num_stages} for config in CONFIGS]
    results = [
        inspect_kernel(matmul, ARGUMENTS, config.kwargs, device=name, **more)
        for config, more in zip(CONFIGS, options, strict=True)
    ]
    can = [(config, it) for config, it in zip(CONFIGS, results, strict=True) if it.occupancy.programs_per_multiprocessor]
    assert kept_of(name) == [config for config, it in can if not it.resources.spilled_bytes_per_thread]


def test_a_removed_configuration_is_logged_with_its_reason(caplog):
    caplog.set_level(logging.INFO, "portable_softmax.fits")
    kept = kept_of("nvidia/rtx-5090")
    gone = sorted((config for config in CONFIGS if config not in kept), key=lambda config: config is SPILLS)  # reported last
    assert [str(config) in record.message for config, record in zip(gone, caplog.records, strict=True)] == [True] * len(gone)
    assert "limited by shared memory; a program has at most 101376 bytes" in caplog.text


def test_what_does_not_compile_goes(caplog):
    caplog.set_level(logging.INFO, "portable_softmax.fits")
    odd = triton.Config({**SMALL.kwargs, "BM": 33}, num_warps=4)
    assert kept_of("nvidia/h200", [odd, SMALL]) == [SMALL]
    assert "does not compile" in caplog.text


def test_a_grid_that_the_device_does_not_take():
    configs = [triton.Config({"BLOCK_SIZE": size}) for size in (128, 1024)]
    arguments = {"x_ptr": "*fp32:16", "y_ptr": "*fp32:16", "out_ptr": "*fp32:16", "n_elements": 2**24}
    chosen = partial(fits, kernel=add_kernel, device="nvidia/h200")
    kept = chosen(configs, arguments, grid=lambda meta: (1, triton.cdiv(meta["n_elements"], meta["BLOCK_SIZE"])))
    assert kept == configs[1:], "131,072 programs along y are too many, and 16,384 are not"
    with pytest.raises(GridError, match="one to three integers"):
        chosen(configs, arguments, grid=(-1,))


def test_a_pruning_function_of_the_user_asks():
    def prune(configs, named_args, **others):
        return partial(fits, device="nvidia/rtx-5090")(configs, named_args, **others)[:1]

    tuned = triton.autotune(CONFIGS, ["M"], prune_configs_by={"early_config_prune": prune})(matmul)
    x = torch.empty(1024, 1024, dtype=torch.float16, device="meta")
    tuned.nargs = dict(zip(tuned.arg_names, (x, x, x, *[1024] * 3, *[1024, 1] * 3), strict=False))
    assert tuned.prune_configs({"grid": (64,), "warmup": True}) == kept_of("nvidia/rtx-5090")[:1]
    assert partial(fits, kernel=matmul, device="nvidia/rtx-5090")([], ARGUMENTS) == []


@pytest.mark.parametrize(
    ("change", "arguments", "error", "words"),
    [
        ({"kernel": None}, ARGUMENTS, TypeError, "not called by Triton's autotuner; pass the kernel"),
        ({}, {"other": 1}, TypeError, "matmul has no parameter other"),
        ({"device": "nvidia/none"}, ARGUMENTS, ProfileError, "nvidia/none"),
        ({"kernel": 7}, ARGUMENTS, TypeError, "7 is not a @triton.jit function"),
    ],
)
def test_refusals(change, arguments, error, words):
    with pytest.raises(error, match=words):
        partial(fits, **{"kernel": matmul, "device": "nvidia/h200"} | change)(CONFIGS, arguments)
