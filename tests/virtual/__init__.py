"""A virtual NPU: Ascend's own compiler front end and lowering, with their last stage, driver and device replaced by a CPU.

Real are the wheel triton-ascend (JIT, option parsing, TTIR, `triton-adapter-opt` from TTIR to linalg) and this package.
So is the plan of the Unified Buffer, by Ascend's compiler (portable_softmax/devices/backends/npu_compiler.py).
Virtual are the devices (machine.py), the driver and the launcher (driver.py), and the last stage, by stock MLIR 19 to x86
(mlir.py, shim.c), in which an fma rounds twice and exp2(x) is exp(x * ln 2), as Ascend's compiler makes them.

What this cannot show: the vector unit's own exp and division, buffers that are used twice, races between programs (they run one
after the other), and speed.
"""
