"""The Linux kernel's out-of-memory reports, 2.6 to 6.12.

``kB`` is KiB; a process name is cut to 15 characters; pids are the host's. Forms read from
kernel sources and met in genuine records of 6.1.176 and 6.12.111.
"""

from __future__ import annotations

from vllm_diag.event_types import CgroupUse, OomKill, OomSummary, OomTask, ProcessDied
from vllm_diag.messages import Message
from vllm_diag.messages._readers import phrases
from vllm_diag.quantities import KIB, Amount, Reader, count, integer, kib, raw_bytes, words

_scope = Reader(
    "scope",
    r"Memorycgroupoutofmemory|OutofMemory|Outofmemory(?:\(oom_kill_allocating_task\))?",
    lambda text: "cgroup" if text.startswith("Memory") else "machine",
    ("Out of memory", "Memory cgroup out of memory"),
)
_comm = Reader("comm", r"[^()]{1,64}?(?:\([^()]{0,32}\))?", str, ("VLLM::EngineCor", "python3"))
_path = Reader("path", r"/[^\s,]{0,400}?", str, ("/system.slice/vllm.service",))
# People who post a kernel line sometimes regroup its digits: 153,700,88kB.
_kib = Reader("kib", r"\d[\d,]{0,20}", kib.read, ("31204880",))

# Between two figures: kept without its blanks, which a wrap can add to.
_between = Reader("between", r".{0,400}?", str, ("(null)", "0x140cca(GFP_HIGHUSER_MOVABLE)"))

# Pages of 4 KiB; arm64 and ppc64 kernels may have 64 KiB, which the table does not tell.
_pages = Reader("pages", r"\d{1,15}", lambda text: Amount(int(text) * 4 * KIB), ("38098",))

MESSAGES = (
    Message(
        code="oom-kill",
        event=OomKill,
        emitter="Linux kernel",
        seen="2.6 - 6.12",
        fatal=True,
        reads={
            "scope": _scope,
            "pid": count,
            "comm": _comm,
            "uid": count,
            "total_vm": _kib,
            "anon_rss": _kib,
            "file_rss": _kib,
            "shmem_rss": _kib,
            "pgtables": _kib,
            "score_adj": integer,
        },
        wordings=(
            # RHEL 6 names the user before the process, RHEL 7 behind it, newer kernels at the end.
            "⟦{scope}: ⟧Killed process {pid}⟦,⟧⟦ UID {uid},⟧ ({comm})⟦,⟧⟦ UID⟨:| ⟩{uid},⟧¦⟦ total-vm:{total_vm}kB⟧⟦,⟧"
            "⟦ anon-rss:{anon_rss}kB⟧⟦,⟧⟦ file-rss:{file_rss}kB⟧⟦,⟧⟦ shmem-rss:{shmem_rss}kB⟧⟦,⟧"
            "⟦ UID:{uid}⟧⟦ pgtables:{pgtables}kB⟧⟦,⟧⟦ oom_score_adj:{score_adj}⟧",
        ),
        samples=(
            "Out of memory: Killed process 14822 (VLLM::EngineCor) total-vm:64213524kB, anon-rss:31204880kB,"
            " file-rss:4kB, shmem-rss:33416kB, UID:0 pgtables:344kB oom_score_adj:0",
            "Memory cgroup out of memory: Killed process 93 (VLLM::EngineCor) total-vm:74752kB, anon-rss:73332kB,"
            " file-rss:4kB, shmem-rss:648kB, UID:0 pgtables:180kB oom_score_adj:0",
            "Killed process 4711 (python3) total-vm:64213524kB, anon-rss:31204880kB, file-rss:0kB",
            "Killed process 4711 (python3), UID 0, total-vm:64213524kB, anon-rss:31204880kB, file-rss:0kB",
            "Killed process 4711, UID 500, (python) total-vm:64213524kB, anon-rss:31204880kB, file-rss:2108kB",
            "Out of Memory: Killed process 4711 (python).",
            "Out of memory (oom_kill_allocating_task): Killed process 4711 (VLLM::Worker_TP) total-vm:64213524kB,"
            " anon-rss:31204880kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:62004kB oom_score_adj:0",
        ),
        means="The kernel killed a process for want of host memory: a full proof.",
    ),
    Message(
        code="oom-candidate",
        emitter="Linux kernel",
        seen="2.6 - 5.0",
        reads={"scope": _scope, "pid": count, "comm": _comm, "score": count},
        wordings=("{scope}: Kill process {pid} ({comm}) score {score} ⟨or sacrifice child|and children⟩",),
        samples=(
            "Out of memory: Kill process 4711 (python3) score 917 or sacrifice child",
            "Out of Memory: Kill process 4711 (python) score 83921 and children.",
        ),
        means="The kernel names a candidate; the process really killed stands on the next line.",
    ),
    Message(
        code="oom-kill-summary",
        event=OomSummary,
        emitter="Linux kernel",
        seen="5.0 - 6.12",
        reads={
            "constraint": Reader("constraint", r"CONSTRAINT_[A-Z_]{3,20}", str, ("CONSTRAINT_NONE",)),
            "nodemask": _between,
            "cpuset": _between,
            "mems": _between,
            "memcg": _path,
            "victim_memcg": _path,
            "comm": Reader("comm", r"[^,]{1,64}?", str, ("VLLM::EngineCor",)),
            "pid": count,
            "uid": count,
        },
        wordings=(
            # People who post the line leave out what seems to say nothing.
            "oom-kill:constraint={constraint}⟦,nodemask={nodemask}⟧⟦,cpuset={cpuset}⟧⟦,mems_allowed={mems}⟧⟦,global_oom⟧"
            "⟦,oom_memcg={memcg}⟧⟦,task_memcg={victim_memcg}⟧,task={comm},pid={pid}⟦,uid={uid}⟧",
        ),
        samples=(
            "oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg=/docker/4f1c2b,task=python3,pid=95",
            "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,"
            "oom_memcg=/system.slice/vllm.service,task_memcg=/system.slice/vllm.service,task=VLLM::EngineCor,pid=93,"
            "uid=0",
            "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0-1,3,global_oom,task_memcg=/,"
            "task=VLLM::Worker_TP,pid=94,uid=0",
        ),
        means="Which limit was full and which process dies for it.",
    ),
    Message(
        code="oom-invoked",
        emitter="Linux kernel",
        seen="2.6 - 6.12",
        reads={"comm": words, "gfp_mask": _between, "order": integer, "score_adj": integer, "old_adj": integer},
        wordings=(
            "{comm} invoked oom-killer: gfp_mask={gfp_mask}, order={order}¦⟦, ⟨oom_adj|oomkilladj⟩={old_adj}⟧"
            "⟦, oom_score_adj={score_adj}⟧",
        ),
        samples=(
            "VLLM::EngineCor invoked oom-killer: gfp_mask=0x140cca(GFP_HIGHUSER_MOVABLE|__GFP_COMP), order=0,"
            " oom_score_adj=0",
            "python invoked oom-killer: gfp_mask=0x14200ca(GFP_HIGHUSER_MOVABLE), nodemask=(null), order=0,"
            " oom_score_adj=0",
            "java invoked oom-killer: gfp_mask=0x280da, order=0, oom_adj=0, oom_score_adj=0",
            "python invoked oom-killer: gfp_mask=0x201d2, order=0, oomkilladj=0",
        ),
        means="A thread asked for a page that was not there (order -1: somebody asked for a kill);"
        " it need not be the victim.",
    ),
    Message(
        code="oom-cgroup-use",
        event=CgroupUse,
        emitter="Linux kernel",
        reads={"usage": _kib, "limit": _kib, "failcnt": count},
        wordings=("memory: usage {usage}kB, limit {limit}kB¦, failcnt {failcnt}",),
        samples=("memory: usage 102400kB, limit 102400kB, failcnt 35",),
        means="Memory of the cgroup whose limit was hit.",
    ),
    Message(
        code="oom-group-kill",
        emitter="Linux kernel",
        seen="4.19 - 6.12",
        reads={"cgroup": _path},
        wordings=("Tasks in {cgroup} are going to be killed due to memory.oom.group set",),
        samples=("Tasks in /system.slice/vllm.service are going to be killed due to memory.oom.group set",),
        means="The whole cgroup is killed.",
    ),
    Message(
        code="oom-reaped",
        emitter="Linux kernel",
        seen="4.6 - 6.12",
        reads={"pid": count, "comm": _comm, "anon_rss": _kib, "file_rss": _kib, "shmem_rss": _kib},
        wordings=(
            "oom_reaper: reaped process {pid} ({comm}), now anon-rss:{anon_rss}kB¦, file-rss:{file_rss}kB,"
            " shmem-rss:{shmem_rss}kB",
            "oom_reaper: unable to reap pid:{pid} ({comm})",
        ),
        samples=(
            "oom_reaper: reaped process 94 (VLLM::Worker_TP), now anon-rss:0kB, file-rss:0kB, shmem-rss:33416kB",
            "oom_reaper: unable to reap pid:94 (VLLM::Worker_TP)",
        ),
        means="Memory was taken back from a killed process, or could not be.",
    ),
    Message(
        code="oom-task",
        event=OomTask,
        emitter="Linux kernel",
        seen="3.x - 6.12",
        spaced=True,
        reads={
            "pid": Reader("pid", r"\s{0,12}\d{1,10}\s{0,4}", int, ("94",)),
            "uid": count,
            "tgid": count,
            "total_vm": _pages,
            "rss": _pages,
            "rss_anon": _pages,
            "rss_file": _pages,
            "rss_shmem": _pages,
            "pgtables": count,
            "pmds": count,
            "swapped": _pages,
            "score_adj": integer,
            "name": Reader("name", r"\S.{0,30}", str, ("VLLM::Worker_TP",)),
        },
        wordings=(
            # Since 6.8 rss is told by kind as well; some 4.x count page-table directories.
            "[{pid}] {uid} {tgid} {total_vm} {rss}⟦ {rss_anon} {rss_file} {rss_shmem}⟧ {pgtables}⟦ {pmds}⟧ {swapped}"
            " {score_adj} {name}",
        ),
        samples=(
            "[     94]     0    94    39189    38098   352256        0             0 VLLM::Worker_TP",
            "[     94]     0    94    39189    38098    29700       44     8354   352256        0             0 VLLM::Worker_TP",
        ),
        means="One process at an out-of-memory kill: who was large. Shared pages count in each.",
    ),
    Message(
        code="oom-task-table",
        emitter="Linux kernel",
        wordings=("Tasks state (memory values in pages):", "[ pid ] uid tgid total_vm rss"),
        samples=(
            "Tasks state (memory values in pages):",
            "[  pid  ]   uid  tgid total_vm      rss pgtables_bytes swapents oom_score_adj name",
        ),
        means="The list of processes at an out-of-memory kill begins; sizes are in pages.",
    ),
    Message(
        code="oom-cgroup-limit",
        emitter="Linux kernel",
        seen="3.x - 4.20",
        reads={"victim_memcg": _path, "memcg": _path},
        wordings=(
            "Task in {victim_memcg} killed as a result of limit of {memcg}",
            "Memory limit reached of cgroup {memcg}",
        ),
        samples=(
            "Task in /docker/4f1c2b/vllm killed as a result of limit of /docker/4f1c2b",
            "Memory limit reached of cgroup /docker/4f1c2b",
        ),
        means="The cgroup whose limit was hit.",
    ),
    Message(
        code="oom-cgroup-swap",
        emitter="Linux kernel",
        reads={"kind": phrases("kind", "swap", "memory+swap", "kmem"), "usage": _kib, "limit": _kib, "failcnt": count},
        wordings=("{kind}: usage {usage}kB, limit {limit}kB¦, failcnt {failcnt}",),
        samples=(
            "swap: usage 0kB, limit 9007199254740988kB, failcnt 0",
            "memory+swap: usage 8388608kB, limit 16777216kB, failcnt 0",
            "kmem: usage 61004kB, limit 9007199254740988kB, failcnt 0",
        ),
        means="The further counters of the cgroup whose limit was hit; 9007199254740988 kB means unlimited.",
    ),
    Message(
        code="oom-cgroup-stats",
        emitter="Linux kernel",
        seen="3.x - 5.2",
        reads={"cgroup": _path, "cache": _kib, "rss": _kib, "rss_huge": _kib, "shmem": _kib},
        wordings=(
            "Memory cgroup stats for {cgroup}: cache:{cache}KB rss:{rss}KB¦ rss_huge:{rss_huge}KB⟦ shmem:{shmem}KB⟧",
        ),
        samples=(
            "Memory cgroup stats for /docker/4f1c2b: cache:33612KB rss:8354996KB rss_huge:0KB shmem:33416KB"
            " mapped_file:33280KB dirty:0KB writeback:0KB swap:0KB",
        ),
        means="What filled the cgroup; shmem is /dev/shm and other tmpfs.",
    ),
    Message(
        code="oom-cgroup-stat",
        emitter="Linux kernel",
        seen="5.3 - 6.12",
        spaced=True,
        reads={"anon": raw_bytes, "shmem": raw_bytes},
        wordings=("anon {anon}", "shmem {shmem}"),
        samples=("anon 8589271040", "shmem 34217984"),
        means="What filled the cgroup whose limit was hit, in bytes; shmem is /dev/shm and other tmpfs.",
    ),
    Message(
        code="oom-memory-info",
        emitter="Linux kernel",
        reads={"free_swap": _kib, "total_swap": _kib, "ram": _pages},
        wordings=("Free swap = {free_swap}kB", "Total swap = {total_swap}kB", "{ram} pages RAM"),
        samples=("Free swap  = 0kB", "Total swap = 8388604kB", "16743021 pages RAM"),
        means="Swap and RAM of the machine, as listed at a shortage; pages of 4 KiB.",
    ),
    Message(
        code="oom-already-exiting",
        emitter="Linux kernel",
        seen="5.x - 6.12",
        reads={"scope": _scope, "pid": count, "comm": _comm},
        wordings=(
            "{scope}: OOM victim {pid} ({comm}) is already exiting. Skip killing the task",
            "Kill process {pid} ({comm}) sharing same memory",
        ),
        samples=(
            "Memory cgroup out of memory: OOM victim 94 (VLLM::Worker_TP) is already exiting. Skip killing the task",
            "Kill process 95 (python3) sharing same memory",
        ),
        means="A process goes down with the victim, or is going already.",
    ),
    Message(
        code="oom-no-victim",
        emitter="Linux kernel",
        fatal=True,
        reads={"scope": phrases("scope", "system-wide", "compulsory")},
        wordings=(
            "Out of memory and no killable processes",
            "Kernel panic - not syncing: Out of memory: {scope} panic_on_oom is enabled",
            "Kernel panic - not syncing: ⟦Out of memory and no killable processes|System is deadlocked on memory⟧",
        ),
        samples=(
            "Out of memory and no killable processes...",
            "Kernel panic - not syncing: Out of memory: system-wide panic_on_oom is enabled",
            "Kernel panic - not syncing: System is deadlocked on memory",
        ),
        means="Memory is gone and the kernel kills nobody: nobody may be killed, or it stops the machine instead.",
    ),
    Message(
        code="oom-on-request",
        emitter="Linux kernel",
        wordings=("⟨sysrq|SysRq ⟩: Manual OOM execution",),
        samples=("sysrq: Manual OOM execution", "SysRq : Manual OOM execution"),
        means="Somebody asked the kernel to kill a process; memory need not have been short.",
    ),
    Message(
        code="page-allocation-failure",
        emitter="Linux kernel",
        reads={"comm": words, "order": count, "mode": _between, "size": raw_bytes},
        wordings=(
            "{comm}: page allocation failure: order:{order}, mode:{mode}",
            "{comm}: vmalloc error: size {size}, ",
            "vmap allocation for size {size} failed",
        ),
        samples=(
            "VLLM::Worker_TP: page allocation failure: order:4, mode:0x40dc0(GFP_KERNEL|__GFP_COMP|__GFP_ZERO)",
            "modprobe: vmalloc error: size 33558528, page order 0, failed to allocate pages",
            "vmap allocation for size 33558528 failed: use vmalloc=<size> to increase size.",
        ),
        means="A request of the kernel itself failed and was handled; nobody was killed for it.",
    ),
    Message(
        code="task-hung",
        emitter="Linux kernel",
        reads={
            "task": Reader("task", r"[^\s:]{1,20}(?::[^\s:]{0,20}){0,3}?", str, ("VLLM::Worker_TP",)),
            "pid": count,
            "seconds": count,
            "cpu": count,
        },
        wordings=(
            "⟦INFO: ⟧task {task}:{pid} blocked for more than {seconds} seconds",
            "watchdog: BUG: soft lockup - CPU#{cpu} stuck for {seconds}s! [{task}:{pid}]",
        ),
        samples=(
            "INFO: task VLLM::Worker_TP:4711 blocked for more than 120 seconds.",
            "watchdog: BUG: soft lockup - CPU#3 stuck for 26s! [python3:4711]",
        ),
        means="A task waits very long for a disk, the network or memory; nobody was killed for it.",
    ),
    Message(
        code="kernel-segfault",
        event=ProcessDied,
        emitter="Linux kernel",
        always={"exit_code": -11},
        reads={
            "process": Reader("process", r"[^\s\[\]]{1,40}", str, ("VLLM::EngineCor",)),
            "pid": count,
            "address": Reader("address", r"[0-9a-fx]{1,20}?", str, ("0", "7f31c8e00000")),
            "library": Reader("library", r"[\w.+-]{1,80}", str, ("libcuda.so.570.86.15",)),
            "error": count,
            "where": _between,
        },
        wordings=(
            "⟦traps: ⟧{process}[{pid}]⟦:⟧ segfault at {address} ip {where} error {error}¦ in {library}[",
            "⟦traps: ⟧{process}[{pid}]⟦:⟧ general protection fault",
        ),
        samples=(
            "VLLM::EngineCor[4711]: segfault at 0 ip 00007f31c8e0a1f3 sp 00007ffd0a2b11c0 error 4 in"
            " libcuda.so.570.86.15[7f31c8c00000+1500000]",
            "traps: python3[4711] general protection fault ip:7f31c8e0a1f3 sp:7ffd0a2b11c0 error:0 in _C.abi3.so",
        ),
        means="A process crashed in native code; no shortage of memory.",
    ),
    Message(
        code="hardware-memory-error",
        emitter="Linux kernel",
        reads={
            "page": Reader("page", r"0x[0-9a-f]{1,16}|[0-9a-f]{1,16}", str, ("0x1f3c2",)),
            "comm": Reader("comm", r"[^\s]{1,20}?(?=:\d)", str, ("VLLM::Worker_TP",)),
            "pid": count,
        },
        wordings=(
            "Memory failure: {page}: Killing {comm}:{pid} due to hardware memory corruption",
            "mce: [Hardware Error]: Machine check events logged",
        ),
        samples=(
            "Memory failure: 0x1f3c2: Killing VLLM::Worker_TP:4711 due to hardware memory corruption",
            "mce: [Hardware Error]: Machine check events logged",
        ),
        means="A memory module of the host is broken; no shortage.",
    ),
    Message(
        code="filesystem-full",
        emitter="Linux kernel",
        reads={"device": words, "error": Reader("error", "28", int, ("28",)), "detail": _between},
        wordings=("EXT4-fs ({device}): Delayed block allocation failed for {detail} error {error}",),
        samples=(
            "EXT4-fs (nvme0n1p2): Delayed block allocation failed for inode 4718594 at logical offset 2048 with max"
            " blocks 2048 with error 28",
        ),
        means="A file system had no block left for what was written; data is lost.",
    ),
)
