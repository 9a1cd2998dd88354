/* NVIDIA's cuda_occupancy.h (pip package nvidia-cuda-runtime) as functions that ctypes can call. */
#include <limits.h>
#include <stddef.h>
#include <string.h>

#include <cuda_occupancy.h>

/* What the CUDA driver tells of a device. */
struct device {
    int compute_capability; /* 90 */
    int warp_size;
    int threads_per_block;
    int threads_per_multiprocessor;
    int registers_per_multiprocessor;
    int shared_memory_per_block_opt_in;
    int shared_memory_per_multiprocessor;
    int shared_memory_reserved_per_block;
};

static struct cudaOccDeviceProp properties_of(const struct device *device)
{
    struct cudaOccDeviceProp properties;
    memset(&properties, 0, sizeof properties);
    properties.computeMajor = device->compute_capability / 10;
    properties.computeMinor = device->compute_capability % 10;
    properties.warpSize = device->warp_size;
    properties.maxThreadsPerBlock = device->threads_per_block;
    properties.maxThreadsPerMultiprocessor = device->threads_per_multiprocessor;
    properties.regsPerBlock = device->registers_per_multiprocessor; /* equal since compute capability 7.0 */
    properties.regsPerMultiprocessor = device->registers_per_multiprocessor;
    properties.sharedMemPerBlock = 48 * 1024; /* without opting in; Triton opts in when it needs more */
    properties.sharedMemPerBlockOptin = device->shared_memory_per_block_opt_in;
    properties.sharedMemPerMultiprocessor = device->shared_memory_per_multiprocessor;
    properties.reservedSharedMemPerBlock = device->shared_memory_reserved_per_block;
    properties.numSms = 1;
    return properties;
}

/* Blocks per multiprocessor of a kernel as Triton launches it: dynamic shared memory, one barrier. Negative: an error. */
int programs(const struct device *device, int registers, int threads, int shared_memory)
{
    struct cudaOccDeviceProp properties = properties_of(device);
    struct cudaOccFuncAttributes kernel;
    struct cudaOccDeviceState state;
    struct cudaOccResult result;
    memset(&kernel, 0, sizeof kernel);
    memset(&state, 0, sizeof state);
    kernel.numRegs = registers;
    kernel.maxThreadsPerBlock = INT_MAX;
    kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
    kernel.maxDynamicSharedSizeBytes = device->shared_memory_per_block_opt_in;
    kernel.numBlockBarriers = 1;
    state.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
    int error = cudaOccMaxActiveBlocksPerMultiprocessor(&result, &properties, &kernel, &state, threads, shared_memory);
    return error ? -error : result.activeBlocksPerMultiprocessor;
}
