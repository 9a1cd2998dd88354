"""The matrix of vendor CI: every leg is complete, and none waits for a runner that is not there."""

import json
from pathlib import Path

import msgspec
import pytest

from portable_softmax import profiles
from portable_softmax.probe import __main__ as probe
from portable_softmax.probe.matrix import Matrix, legs

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ([], ["offline", "nvidia-h200", "amd-mi300x", "ascend-910b3"]),
        (["--backend", "hip", "npu"], ["amd-mi300x", "ascend-910b3"]),
        (["--runner", "ubuntu-24.04"], ["offline"]),
        (["--offline"], ["offline"]),
        (["--offline", "--backend", "cuda"], []),
        (["--runner", "self-hosted", "amd-mi300x", "other"], ["amd-mi300x"]),
        (["--runner", "self-hosted"], []),
        (["--backend", "cuda", "--runner", "ubuntu-24.04"], []),
    ],
)
def test_the_matrix_has_the_legs_that_are_wanted_and_that_a_runner_takes(capsys, options, names):
    code = probe.main(["--matrix", *options])
    out, err = capsys.readouterr()
    assert code == (0 if names else 1)
    assert [leg["name"] for leg in json.loads(out)["include"]] == names if names else "no leg of offline, nvidia-h200" in err


def test_images_are_pinned_and_containers_have_their_vendors_devices():
    legs = {leg["device"]: leg for leg in json.loads((ROOT / ".github" / "matrix.json").read_text())["include"]}
    needed = {
        "cuda": ["--gpus all"],
        "hip": ["/dev/kfd", "/dev/dri", "--group-add video", "--group-add render"],
        "npu": ["/dev/davinci0", "/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc"],
    }
    for device, options in needed.items():
        container = legs[device]["container"]
        assert container["image"].partition(":")[2] not in ("", "latest"), device
        assert all(option in container["options"] for option in options), device
    assert any("npu-smi" in volume for volume in legs["npu"]["container"]["volumes"])


def test_each_profile_of_a_leg_is_there():
    assert {leg.profile for leg in legs() if leg.profile} <= profiles().keys()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"container": {"image": "rocm/pytorch:latest"}}, "matching regex"),
        ({"container": {"image": "rocm/pytorch"}}, "matching regex"),
        ({"runner": []}, "length >= 1"),
        ({"device": "tpu"}, "Invalid enum value 'tpu'"),
        ({"setpu": "true"}, "unknown field `setpu`"),
        ({"triton": ""}, "length >= 1"),
    ],
)
def test_a_leg_that_is_not_right_is_refused(change, complaint):
    leg = msgspec.to_builtins(legs()[0]) | change
    with pytest.raises(msgspec.ValidationError, match=complaint):
        msgspec.convert({"include": [leg]}, Matrix)


def test_its_schema_is_published():
    written = json.loads((ROOT / ".github" / "matrix.schema.json").read_text())
    assert written == msgspec.json.schema(Matrix), (
        "python -c 'import json, msgspec; from portable_softmax.probe.matrix import Matrix; "
        "print(json.dumps(msgspec.json.schema(Matrix), indent=2))' > .github/matrix.schema.json"
    )
