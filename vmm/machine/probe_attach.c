/* SPDX-License-Identifier: Apache-2.0 */
/* Requirements for VMs of other programs: BPF, access to their memory, libvirt. */
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "shared/error.h"
#include "vmm/machine/probe_list.h"

static int bpf_call(enum bpf_cmd command, union bpf_attr *attr)
{
	return (int)syscall(SYS_bpf, command, attr, sizeof(*attr));
}

/* Loads the smallest perf_event program: return 0. */
void probe_bpf(struct probe_row *row)
{
	static const struct bpf_insn program[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = 0 },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	union bpf_attr map = {
		.map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 8, .max_entries = 1
	};
	union bpf_attr load = { .prog_type = BPF_PROG_TYPE_PERF_EVENT,
				.insns = (uintptr_t)program,
				.insn_cnt = 2,
				.license = (uintptr_t) "Dual BSD/GPL" };

	if (bpf_call(BPF_MAP_CREATE, &map) < 0)
		probe_report(row, PROBE_NO, "BPF_MAP_CREATE: %m");
	else if (bpf_call(BPF_PROG_LOAD, &load) < 0)
		probe_report(row, PROBE_NO, "BPF_PROG_LOAD of a perf_event program: %m");
	else
		probe_report(row, PROBE_YES, "maps and perf_event programs load");
}

#define BTF_FILE  "/sys/kernel/btf/vmlinux"
#define BTF_MAGIC 0xeb9f

void probe_btf(struct probe_row *row)
{
	int fd = open(BTF_FILE, O_RDONLY | O_CLOEXEC);
	uint16_t magic = 0;

	if (fd < 0)
		probe_report(row, PROBE_NO, BTF_FILE ": %m");
	else if (read(fd, &magic, sizeof(magic)) != sizeof(magic) || magic != BTF_MAGIC)
		probe_report(row, PROBE_NO, BTF_FILE " is not BTF");
	else
		probe_report(row, PROBE_YES, BTF_FILE " is readable");
}

/* Reads the parent: it is not a child of ours, so restrictions on attaching (Yama) apply. */
void probe_process_memory(struct probe_row *row)
{
	static char token[] = "token";
	char copy[sizeof(token)] = "";
	struct iovec local = { copy, sizeof(copy) };
	struct iovec remote = { token, sizeof(token) }; /* at the same address in the parent */

	if (process_vm_readv(getppid(), &local, 1, &remote, 1, 0) != sizeof(token))
		probe_report(row, PROBE_NO, "process_vm_readv of the parent process: %m");
	else if (strcmp(copy, token) != 0)
		probe_report(row, PROBE_NO, "process_vm_readv returned wrong data");
	else
		probe_report(row, PROBE_YES,
			     "memory of another process of the same user is readable");
}

static int connect_to(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int error;

	if (fd < 0)
		return -errno;
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	error = connect(fd, (struct sockaddr *)&address, sizeof(address)) ? -errno : 0;
	close(fd);
	return error;
}

void probe_libvirt(struct probe_row *row)
{
	static const char *const sockets[] = { "/run/libvirt/virtqemud-sock",
					       "/run/libvirt/libvirt-sock" };
	int error = 0;

	for (size_t i = 0; i < sizeof(sockets) / sizeof(sockets[0]); i++) {
		error = connect_to(sockets[i]);
		if (!error) {
			probe_report(row, PROBE_YES, "%s answers", sockets[i]);
			return;
		}
	}
	probe_report(row, PROBE_NO, "%s: %s", sockets[1], strerror(-error));
}

#define LIBVIRT "/etc/libvirt"
#define HOOKS   LIBVIRT "/hooks"

void probe_libvirt_hooks(struct probe_row *row)
{
	int fd = open(HOOKS, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);

	/* file systems without O_TMPFILE return EOPNOTSUPP only if the directory exists */
	if (fd >= 0 || (errno == EOPNOTSUPP && !access(HOOKS, W_OK)))
		probe_report(row, PROBE_YES, HOOKS " exists and is writable");
	else if (errno == ENOENT && !access(LIBVIRT, W_OK))
		probe_report(row, PROBE_YES,
			     "no " HOOKS " yet; kvmscope libvirt install creates it");
	else if (errno == ENOENT)
		probe_report(row, PROBE_NO, "no " HOOKS "; libvirt is not installed");
	else
		probe_report(row, PROBE_NO, HOOKS ": %m%s",
			     errno == EACCES ? " (run as root)" : "");
}
