// arch_traits.h of NVIDIA's pip package nvidia-cuda-cccl as a function that ctypes can call.
#include <cuda/__device/arch_traits.h>

// In the order of `Facts` in test_oracle_nvidia.py. Nonzero: the header does not know the compute capability.
extern "C" int facts(int compute_capability, int out[11])
try {
    const cuda::arch_traits_t traits = cuda::arch_traits_for(cuda::compute_capability{compute_capability});
    out[0] = traits.warp_size;
    out[1] = traits.max_registers_per_multiprocessor;
    out[2] = traits.max_registers_per_thread;
    out[3] = traits.max_threads_per_block;
    out[4] = traits.max_warps_per_multiprocessor;
    out[5] = traits.max_blocks_per_multiprocessor;
    out[6] = static_cast<int>(traits.max_shared_memory_per_block_optin);
    out[7] = static_cast<int>(traits.max_shared_memory_per_multiprocessor);
    out[8] = static_cast<int>(traits.reserved_shared_memory_per_block);
    out[9] = traits.max_grid_dim_x;
    out[10] = traits.max_grid_dim_y == traits.max_grid_dim_z ? traits.max_grid_dim_y : -1;
    return 0;
} catch (...) {
    return 1;
}
