"""Intel's way on a CPU: triton-xpu compiles, ocloc makes native code, and Intel's OpenCL runtime runs the SPIR-V.

Real are the compilers (Triton to SPIR-V, ocloc to registers and spills) and this package's plans. The OpenCL runtime compiles
the same SPIR-V for the CPU, with sub-groups of the same size; only header instructions that it refuses are left out (spirv.py).

What this cannot show: the GPU's own exp2 and division, its caches and how it orders memory, speed, and Triton's driver, which
needs SYCL. Programs run in as many threads as there are cores, so those that share a row run side by side or one after another.
"""
