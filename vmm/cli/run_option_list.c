/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/run_option_list.h"

#include <stddef.h>

enum group {
	GROUP_KERNEL = 1,
	GROUP_MACHINE,
	GROUP_PROFILE,
	GROUP_FLIGHT,
	GROUP_CONTROL,
	GROUP_END
};

const struct argp_option run_option_list[] = {
	{ NULL, 0, NULL, 0, "What to boot:", GROUP_KERNEL },
	{ "kernel", KEY_KERNEL, "FILE", 0, "bzImage, vmlinux or multiboot image (required)",
	  GROUP_KERNEL },
	{ "initrd", KEY_INITRD, "FILE", 0, "Initial RAM disk", GROUP_KERNEL },
	{ "append", KEY_APPEND, "STRING", 0, "Kernel command line", GROUP_KERNEL },
	{ "protocol", KEY_PROTOCOL, "NAME", 0,
	  "How to start it: auto (by what the file is), bzimage, pvh, elf64, multiboot",
	  GROUP_KERNEL },
	{ "module-text", KEY_MODULE_TEXT, "TEXT", 0,
	  "Multiboot's one module: an environment text, or @FILE to read it from", GROUP_KERNEL },

	{ NULL, 0, NULL, 0, "The machine:", GROUP_MACHINE },
	{ "cpus", KEY_CPUS, "N", 0, "vCPUs, 1 to 64 (1)", GROUP_MACHINE },
	{ "mem", KEY_MEM, "SIZE", 0, "Guest memory: 128M, 2G, ... (512M)", GROUP_MACHINE },
	{ "disk", KEY_DISK, "FILE[,ro]", 0,
	  "Raw image as a virtio disk, with ,ro read-only; up to 5 times", GROUP_MACHINE },
	{ "reboot", KEY_REBOOT, NULL, 0,
	  "A reset starts the guest anew; without it, it ends the run. Each boot has a file of its own: perf.data, "
	  "perf.data.1, ...",
	  GROUP_MACHINE },
	{ "nested", KEY_NESTED, NULL, 0,
	  "The guest may run guests of its own, by its own KVM: it is shown VMX or SVM. A sample in one of those is "
	  "counted, and has neither names nor callers",
	  GROUP_MACHINE },
	{ "console", KEY_CONSOLE, "WHERE", 0,
	  "The serial port ttyS0: stdio (Ctrl-A x quits on a terminal), none, or a file for its output (stdio)",
	  GROUP_MACHINE },
	{ "agent", KEY_AGENT, "WHERE", OPTION_ARG_OPTIONAL,
	  "Ask an agent in the guest for its processes. initrd: put it into the initrd and start it; "
	  "guest: it is installed there (initrd)",
	  GROUP_MACHINE },
	{ "agent-memory", KEY_AGENT_MEMORY, "SIZE", 0,
	  "Memory that the guest's agent can make kvmscope take, in all, and size of the names of its programs in "
	  "the build-id cache; of more, the oldest names go first, then more is refused, and counted (64M; 16M at "
	  "least)",
	  GROUP_MACHINE },
	{ "agent-socket", KEY_AGENT_SOCKET, "PATH", 0,
	  "UNIX socket that the virtio port org.kvmscope.agent.0 is reached by", GROUP_MACHINE },
	{ "pmu", KEY_PMU, "WHAT", 0,
	  "The guest's performance counters. kernel: the host's, by KVM; emulated: kvmscope's, which counts by perf "
	  "on the host or, where that has no counters, cycles by the time that the guest runs; off: none; auto: "
	  "kernel where KVM has them, else emulated where Linux can use them, else off (auto)",
	  GROUP_MACHINE },

	{ NULL, 0, NULL, 0, "The profile:", GROUP_PROFILE },
	{ "output", KEY_OUTPUT, "FILE", 0, "perf.data file; - for standard output (perf.data)",
	  GROUP_PROFILE },
	{ "freq", KEY_FREQUENCY, "HZ", 0,
	  "Samples per second of the clock and vCPU, up to 10000 (999)", GROUP_PROFILE },
	{ "event", KEY_EVENT, "EVENT", 0, "What to sample by: cpu-clock", GROUP_PROFILE },
	{ "clock", KEY_CLOCK, "CLOCK", 0,
	  "cpu: the vCPU's CPU time, so an idle guest gives no samples; wall: time as it passes (cpu)",
	  GROUP_PROFILE },
	{ "sampler", KEY_SAMPLER, "HOW", 0,
	  "kick: the vCPU leaves the guest for each sample; bpf: a BPF program takes it in the kernel, which costs "
	  "the guest less and sees less, callers in programs by frame pointers only; auto: bpf where it sees as much, "
	  "with --no-call-graph and --agent, where KVM is not kvm_intel and the kernel lets us, else kick (auto)",
	  GROUP_PROFILE },
	{ "from-line", KEY_FROM_LINE, "TEXT", 0,
	  "Start sampling when a line with TEXT is printed on the console", GROUP_PROFILE },
	{ "watch", KEY_WATCH, "WHAT", 0,
	  "Record each access or execution: sym[+off]|addr[:len[:rwx]][@vcpu][,pinned][,cr3=N|pid=N|comm=NAME]"
	  "[,period=N][,limit=N], as jiffies_64:8:w or schedule:x; up to 16 times",
	  GROUP_PROFILE },
	{ "bp-priority", KEY_BP_PRIORITY, "WHOSE", 0,
	  "Who gets a debug register that --watch and the guest both want: guest, host (guest)",
	  GROUP_PROFILE },
	{ "no-call-graph", KEY_NO_CALL_GRAPH, NULL, 0, "No callchains", GROUP_PROFILE },
	{ "stack-time", KEY_STACK_TIME, "TIME", 0,
	  "Cut callchains that take the vCPU longer than this: 64us, 1ms; 0us never (64us)",
	  GROUP_PROFILE },
	{ "symfs", KEY_SYMFS, "DIR", 0,
	  "The guest's files by their paths: unwind tables of programs that are not in its memory, by build id",
	  GROUP_PROFILE },
	{ "perspective", KEY_PERSPECTIVE, "WHOSE", 0,
	  "guest: as if recorded inside the guest; host: as perf kvm sees it (guest)",
	  GROUP_PROFILE },
	{ "compression-level", KEY_COMPRESS, "LEVEL", OPTION_ARG_OPTIONAL,
	  "Compress with zstd, level 1 to 22 (1)", GROUP_PROFILE },
	{ "kallsyms", KEY_KALLSYMS, "FILE", 0,
	  "Kernel symbols from this /proc/kallsyms of the guest", GROUP_PROFILE },
	{ "vmlinux", KEY_VMLINUX, "FILE", 0, "Kernel symbols from this ELF file", GROUP_PROFILE },
	{ "btf", KEY_BTF, "FILE", 0,
	  "BTF of the guest's kernel where its memory has none: a vmlinux, or a copy of /sys/kernel/btf/vmlinux",
	  GROUP_PROFILE },
	{ "no-buildid-cache", KEY_NO_BUILDID_CACHE, NULL, 0, "Leave perf's build-id cache alone",
	  GROUP_PROFILE },
	{ "no-disk-names", KEY_NO_DISK_NAMES, NULL, 0,
	  "Do not look for the names of the guest's programs on the --disk images at the end",
	  GROUP_PROFILE },
	{ "ring-size", KEY_RING_SIZE, "SIZE", 0, "Buffer of each vCPU, a power of two (2M)",
	  GROUP_PROFILE },
	{ "no-profile", KEY_NO_PROFILE, NULL, 0, "Run the guest only", GROUP_PROFILE },

	{ NULL, 0, NULL, 0, "The flight recorder:", GROUP_FLIGHT },
	{ "flight", KEY_FLIGHT, "TIME|SIZE", 0,
	  "Keep the last samples in memory (30s, 5min of them; or 64M for all vCPUs) and write them only when "
	  "something happens: kvmscope dump, SIGUSR2, a panic, a reset or triple fault of the guest, ...",
	  GROUP_FLIGHT },
	{ "after", KEY_AFTER, "TIME", 0, "Wait for this much more before writing: 5s, 500ms (0s)",
	  GROUP_FLIGHT },
	{ "flight-max", KEY_FLIGHT_MAX, "N", 0,
	  "Files that the guest itself can cause in a run (32)", GROUP_FLIGHT },
	{ "trigger", KEY_TRIGGER, "KIND=LIMIT", 0,
	  "Write for this as well: stuck=MS, a vCPU ran so long without an exit; exits=N/s, it makes more; steal=P%, "
	  "it waits more for a host CPU; console=REGEX, a line was printed. May be given several times",
	  GROUP_FLIGHT },

	{ NULL, 0, NULL, 0, "Control from outside, by kvmscope ctl:", GROUP_CONTROL },
	{ "name", KEY_NAME, "NAME", 0,
	  "What kvmscope ctl knows this run by, besides its process id", GROUP_CONTROL },
	{ "control", KEY_CONTROL, "PATH", 0,
	  "Listen at this UNIX socket (one below $XDG_RUNTIME_DIR/kvmscope or /run/kvmscope)",
	  GROUP_CONTROL },
	{ "no-control", KEY_NO_CONTROL, NULL, 0, "Listen nowhere", GROUP_CONTROL },

	{ NULL, 0, NULL, 0, "The end, and messages:", GROUP_END },
	{ "duration", KEY_DURATION, "SECONDS", 0, "End the guest then, as wanted", GROUP_END },
	{ "timeout", KEY_TIMEOUT, "SECONDS", 0, "End the guest then, as failed: exit status 124",
	  GROUP_END },
	{ "quiet", KEY_QUIET, NULL, 0, "No progress, no summary", GROUP_END },
	{ "verbose", KEY_VERBOSE, NULL, 0, "Details", GROUP_END },
	{ 0 },
};

const char run_option_help[] =
	"Run a guest under KVM and profile it from outside: nothing is installed in it, nothing copied out of it.\v"
	"Examples:\n"
	"  kvmscope run --kernel vmlinuz --initrd initrd.img --append console=ttyS0\n"
	"      boot it, write perf.data; look with: kvmscope report, or perf report\n"
	"  kvmscope run --kernel vmlinuz --cpus 4 --mem 2G --disk root.img \\\n"
	"               --append 'root=/dev/vda console=ttyS0' -F 4000 -o boot.data\n"
	"      four vCPUs, a disk, 4000 samples per second of CPU time\n"
	"  kvmscope run --kernel guest.elf --protocol multiboot --no-profile; echo $?\n"
	"      a small guest whose value at port 0xf4 is the exit status\n"
	"\n"
	"The guest ends by powering off, by a reboot (unless --reboot is given), or by\n"
	"writing port 0xf4. SIGINT (Ctrl-C, where the console is not the terminal)\n"
	"presses its power button, the second one stops it where it stands, as Ctrl-A x\n"
	"does on the terminal.\n"
	"\n"
	"Exit status: 0, or the value the guest wrote to port 0xf4 (its low 8 bits);\n"
	"1 something failed; 2 wrong usage; 3 triple fault or KVM internal error;\n"
	"4 this host's KVM can not do it; 124 --timeout.\n";
