"""Expected microseconds of a launch: a sum of terms, from facts and a few numbers that were measured on a device.

A multiprocessor takes its programs in waves: so many at once. A program waits, for the sums of its threads and for other
programs, and moves its bytes. Others use the memory meanwhile, unless all are in step, as they are in the first waves; in
the units of a multiprocessor its programs take turns. So a launch takes: its start, the waiting that nothing hides, and the
largest of moving all bytes, going through all waves, and starting all programs, or somewhat more where two of them are alike.
"""

from portable_softmax.devices.device import Device
from portable_softmax.devices.policy import CostNumbers
from portable_softmax.errors import PlanError
from portable_softmax.planning.facts import Facts, facts
from portable_softmax.planning.plan import Terms, Tiling
from portable_softmax.planning.problem import Problem

NS, PS = 1e-3, 1e-6  # microseconds of a nanosecond, and of a picosecond


def cost(
    problem: Problem, tiling: Tiling, num_programs: int, resident: int, device: Device, spilled_bytes: int = 0
) -> Terms | None:
    """Returns what a launch should take; None for a device whose profile gives no numbers for it.

    Args:
        problem: as it is read, see reading.py.
        tiling: how its rows are cut.
        num_programs: size of the grid.
        resident: programs that a multiprocessor holds at once.
        device: where it runs.
        spilled_bytes: of a thread.

    Raises:
        PlanError: no program is resident.
    """
    if resident < 1:
        raise PlanError(f"the cost of {tiling} was asked for, of which no program is resident")
    numbers = device.profile.launch.cost
    return terms(facts(problem, tiling, num_programs, resident, device, spilled_bytes), numbers) if numbers else None


def terms(given: Facts, numbers: CostNumbers) -> Terms:
    """Returns the terms of a launch; arithmetic alone, so that arrays of facts give arrays of terms."""
    exchange, steps = numbers.exchange_us * given.shared, numbers.step_us * given.steps
    thread = NS * numbers.thread_ns * given.each
    lookups = NS * numbers.lookup_ns * given.lookups
    busy = PS * (
        numbers.alone_ps * given.alone
        + numbers.request_ps * given.requests
        + numbers.exponent_ps * given.exponents
        + numbers.sum_ps * given.sums
    )  # of the multiprocessor
    later = given.waves - 1
    in_step = 1 + numbers.in_step * later / (later + numbers.in_step) / given.beside

    once = given.bytes_us / numbers.bandwidth
    pieces, again = once * numbers.line * given.pieces, given.again_us / numbers.again + given.spilled_us / numbers.spilled
    moving = once + pieces + again
    waits = later * (given.waiting * exchange + thread + steps + (given.waiting * lookups + busy) * given.beside)
    waves = waits / moving
    starting = NS * numbers.program_ns * given.programs / moving
    waves, starting = waves**numbers.overlap, starting**numbers.overlap
    hidden_not = moving * ((1 + waves + starting) ** (1 / numbers.overlap) - 1)
    return Terms(
        start=numbers.start_us * given.launches,
        moving=once,
        pieces=pieces,
        again=again,
        exchange=(exchange + lookups) * in_step,
        threads=thread * in_step + busy * (in_step - 1 + given.beside),
        steps=steps * in_step,
        waves=hidden_not * waves / (waves + starting),
        starting=hidden_not * starting / (waves + starting),
    )
