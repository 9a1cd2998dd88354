"""Shapes that the benchmark measures, as (rows, columns)."""

VOCABULARIES = (32000, 50257, 128256, 151936, 262144)  # Llama 2, GPT-2, Llama 3, Qwen, Gemma

SWEEPS = {
    "tutorial": [(4096, 128 * i) for i in range(2, 100)],  # the shapes of Triton's tutorial
    "wide": [(32768, 128 * i) for i in range(1, 17)],
    "long": [(2**28 // n_cols, n_cols) for n_cols in (16384, 32768, 65536, 131072, 262144)],  # 1 GB of float32
    "few": [(m, n) for m in (1, 2, 4, 8, 16, 32, 64, 128) for n in VOCABULARIES],
    "served": [(48, 129280), (256, 50304), (512, 151936), (1024, 32768), (1024, 131072)],  # batches of serving and training
    "unaligned": [(m, n) for m in (1823, 4096, 32768) for n in (781, 1000, 1823, 12673)] + [(1024, 50257), (512, 151936)],
    "tiny": [(2**24 // n, n) for n in (2, 3, 4, 7, 8, 10, 16, 17, 32, 33, 49, 64, 100, 128, 197, 256, 333, 512, 577)]
    + [(m, n) for m in (1, 64) for n in (8, 10, 100, 577)],  # 64 MB of float32, and shapes that take only the time of a launch
    "log_probs": [*((m, 128256) for m in (1, 8, 64, 4096)), (8192, 151936), (16384, 32000)],  # samplers and trainers
    "quick": [(4096, 781), (4096, 4096), (4096, 12672), (1024, 32768), (512, 262144), (8, 128256)],
}
