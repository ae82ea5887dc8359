"""Driver, CUDA libraries and GPU do not fit each other.

`cuda-driver-mismatch`: the driver is older than the CUDA the wheels were made for (`driver
version is insufficient`, `driver on your system is too old`), or a libcuda inside the
container is not the one of the kernel module (error 803, 804, `API mismatch`). Compare
`nvidia-smi` on the host and in the container; take the image's compat directory out of the
library path, update the driver, or use an image for an older CUDA. After an update of the
driver without a reboot, reboot.

`fabric-manager-down`: error 802, `system not yet initialized`, or NVSwitch multicast that
cannot be bound. Machines with NVSwitch need the fabric manager of exactly the driver's
version: `systemctl status nvidia-fabricmanager`, and `nvidia-smi -q | grep -A2 Fabric`.

`no-kernel-image`: the installed binaries hold no code for this GPU's architecture. Very new
GPUs need newer wheels, old ones a build of their own (`TORCH_CUDA_ARCH_LIST`).

None of them is a matter of memory settings.
"""

from vllm_diag.causes import Case, Cause, Finding
from vllm_diag.causes._stated import EXPLAINS, cuda_errors, gathered, loud
from vllm_diag.causes._torch_oom import CASCADE
from vllm_diag.messages.gpu_runtime import DRIVER, FABRIC, NO_CODE


def _driver(case: Case, cause: Cause) -> Finding | None:
    # Printed as a warning where the platform is detected, and it is the reason all the same.
    events = sorted(
        [*cuda_errors(case, DRIVER), *case.run.coded("gpu-driver-mismatch")], key=lambda event: event.at.order
    )
    if not events:
        return None
    facts = gathered(events)
    found = facts.get("found")
    if isinstance(found, int):
        facts["driver_supports_cuda"] = f"{found // 1000}.{found % 1000 // 10}"
    facts = {
        k: v for k, v in facts.items() if k in ("number", "error", "found", "driver_supports_cuda", "client_version")
    }
    what = facts.get("error")
    if "driver_supports_cuda" in facts:
        what = f"the driver supports CUDA {facts['driver_supports_cuda']} at most, which is less than PyTorch needs"
    return cause.finding(*events[:4], facts=facts, summary=f"{cause.summary[:-1]}: {what}." if what else cause.summary)


def _fabric(case: Case, cause: Cause) -> Finding | None:
    stated = cuda_errors(case, FABRIC)
    events = [*stated, *case.run.coded("nvls-failed")]
    if not events:
        return None
    facts = {k: v for k, v in gathered(events).items() if k in ("number", "error")}
    return cause.finding(*events[:4], verdict="confirmed" if stated else "likely", facts=facts)


def _no_code(case: Case, cause: Cause) -> Finding | None:
    stated = loud(cuda_errors(case, NO_CODE))
    warned = case.run.coded("architecture-not-built")
    if not stated and not (warned and case.run.has(*CASCADE) and not case.run.has("cuda-error")):
        return None
    events = [*stated, *warned]
    facts = {k: v for k, v in gathered(events).items() if k in ("error", "arch")}
    for_arch = f" ({facts['arch']})" if "arch" in facts else ""
    return cause.finding(
        *events[:4],
        verdict="confirmed" if stated else "likely",
        facts=facts,
        summary=f"The installed kernels hold no code for this GPU's architecture{for_arch}.",
    )


CAUSES = (
    Cause(
        code="cuda-driver-mismatch",
        term="none",
        title="Driver and CUDA libraries do not fit",
        summary="Driver and CUDA libraries do not fit each other.",
        judge=_driver,
        explains=("gpu-not-visible", "no-kernel-image", *EXPLAINS),
        arises=(
            "A CUDA runtime asks for a driver at least as new as itself, and libcuda.so must come from "
            "the release of the loaded kernel module. A new wheel or image on a host with an old driver, "
            "a driver that was updated under a running system, and a compat directory on cards that do "
            "not allow it are the usual situations."
        ),
        verify=(
            "`nvidia-smi` shows the same driver version on the host and in the container, and "
            "`torch.cuda.is_available()` is True there."
        ),
        useless=(
            "A driver package installed in the container does not replace the host's kernel module. A "
            "newer CUDA toolkit in the image asks for more of the driver, not less."
        ),
    ),
    Cause(
        code="fabric-manager-down",
        term="none",
        title="The fabric manager is not running",
        summary="The NVSwitch fabric is not initialised: its manager is not running, or not in the driver's version.",
        judge=_fabric,
        explains=("gpu-not-visible", *EXPLAINS),
        arises=(
            "On HGX and DGX machines with NVSwitch no GPU can be used before the fabric manager has set "
            "the switches up, not even a single one. The service was not installed, not enabled at boot, "
            "or left at its old version by an update of the driver."
        ),
        verify=(
            "`systemctl status nvidia-fabricmanager` says active, and from Hopper on `nvidia-smi -q` "
            "shows the fabric state Completed for every GPU."
        ),
        useless=(
            "NCCL settings and a smaller `--tensor-parallel-size` do not get past error 802, which comes "
            "before any communication."
        ),
    ),
    Cause(
        code="no-kernel-image",
        term="none",
        title="No code for this GPU in the installed kernels",
        summary="The installed kernels hold no code for this GPU's architecture.",
        judge=_no_code,
        explains=("custom-allreduce-failed", *EXPLAINS),
        arises=(
            "A CUDA binary holds machine code for the architectures it was compiled for and at most PTX "
            "for later ones. A card newer than the wheel, a card older than the oldest architecture that "
            "is still built, and an extension compiled on another machine are the usual situations."
        ),
        verify=(
            "`torch.cuda.get_arch_list()` names the card's architecture, or a lower one of the same major "
            "number, and profiling runs through."
        ),
        useless=(
            "A newer driver adds no code to a binary. `TORCH_CUDA_ARCH_LIST` at run time leaves installed "
            "binaries as they are."
        ),
    ),
)
