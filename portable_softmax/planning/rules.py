"""Which of a profile's launch rules take a problem."""

from collections.abc import Iterator

from portable_softmax.devices.device import Device
from portable_softmax.devices.policy import LaunchRule
from portable_softmax.planning.problem import Problem


def matching(problem: Problem, device: Device) -> Iterator[LaunchRule]:
    """Returns the rules that take the problem, in the profile's order."""
    load = load_of(problem, device)
    return (rule for rule in device.profile.launch.rules if takes(rule, problem, load))


def takes(rule: LaunchRule, problem: Problem, load: float | None) -> bool:
    """Tells whether all of the rule's conditions hold; one on a load that is unknown does not."""
    if rule.step and rule.step != problem.step:
        return False
    if rule.direction and rule.direction != problem.direction:
        return False
    if rule.element_bytes and rule.element_bytes != problem.element_bytes:
        return False
    if rule.access and rule.access != problem.access:
        return False
    if rule.layout and rule.layout != problem.layout:
        return False
    if not (rule.from_cols or 0) <= problem.n_cols <= (rule.to_cols or problem.n_cols):
        return False
    if load is None:
        return not rule.from_load and not rule.to_load
    return (rule.from_load or 0) <= load <= (rule.to_load or load)


def load_of(problem: Problem, device: Device) -> float | None:
    """Returns the elements of all rows for each thread that the device holds at once; infinite if rows may be any number.

    None where the device has no such threads, or their number is unknown.
    """
    hardware = device.hardware
    if not hardware.multiprocessor_count or not hardware.max_warps_per_multiprocessor or not hardware.warp_size:
        return None
    threads = hardware.multiprocessor_count * hardware.max_warps_per_multiprocessor * hardware.warp_size
    return float("inf") if problem.batch_invariant else problem.n_rows * problem.n_cols / threads
