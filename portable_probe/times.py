"""Tells how long a launch should take, and what that depends on; the model is that of portable_softmax/planning/cost.py."""

from portable_probe.report_types import Time
from portable_softmax.devices.device import Device
from portable_softmax.planning.facts import GB_PER_S, softmax_facts
from portable_softmax.planning.plan import LaunchPlan


def time_of(found: LaunchPlan, device: Device) -> Time | None:
    """Returns the time of a planned softmax, or of its gradient; None if nobody knows the bandwidth."""
    problem, tiling, cost = found.problem, found.tiling, device.profile.launch.cost
    per_us = GB_PER_S * (device.hardware.memory_bandwidth_gb_per_s or 0)
    resident = device.resident(found.occupancy)
    if not per_us or not resident:
        return None
    known = softmax_facts(problem, tiling, found.num_programs, found.occupancy.programs_per_multiprocessor, device)
    waves = found.num_programs / resident
    block = tiling.tile_rows * min(tiling.tile_cols, problem.n_cols) * problem.element_bytes
    in_flight = min(resident, found.num_programs) * block * (2 if problem.backward else 1)
    return Time(
        bytes=round(known.memory_us * per_us),
        floor_us=known.memory_us,
        waves=waves,
        tail=1 - waves / -(-found.num_programs // resident),
        covered_us=in_flight / per_us,
        expected_us=found.terms.total if found.terms else None,
        terms=found.terms._asdict() if found.terms else {},
        source=device.profile.sources[cost.source].title if cost else None,
        error=(cost and cost.error_90) or None,
    )
