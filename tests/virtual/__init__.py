"""A virtual NPU: Ascend's own compiler front end and lowering, with their last stage, driver and device replaced by a CPU.

Real are the wheel triton-ascend (JIT, option parsing, TTIR, `triton-adapter-opt` from TTIR to linalg) and this package.
Virtual are the devices (machine.py), the driver and the launcher (driver.py), and what CANN would do: the
Unified Buffer's limit (buffer.py) and the last stage, by stock MLIR 19 to x86 (mlir.py, shim.c).

What this cannot show: the vector unit's own exp2 and division, the real allocation of the Unified Buffer, races between
programs (they run one after the other), and speed.
"""
