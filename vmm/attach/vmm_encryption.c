/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/attach/vmm_encryption.h"

#include <fcntl.h>
#include <string.h>

#include "vmm/attach/proc_files.h"

/* A parameter of the module (arch/x86/kvm/vmx/tdx.c). */
#define TDX_ENABLED "/sys/module/kvm_intel/parameters/tdx"

struct files {
	int directory;
	bool sev, private_memory;
};

static bool check_file(void *context, int number)
{
	struct files *files = context;
	char link[64];

	if (proc_read_link(files->directory, number, link, sizeof(link))) {
		files->sev |= !strcmp(link, "/dev/sev");
		files->private_memory |= !strcmp(link, "anon_inode:[kvm-gmem]");
	}
	return true;
}

enum guest_encryption encryption_by_files(int directory, bool has_tdx)
{
	struct files files = { .directory = directory };

	proc_each_number(directory, "fd", check_file, &files);
	if (files.sev)
		return GUEST_SEV_ANY;
	return files.private_memory && has_tdx ? GUEST_TDX : GUEST_PLAIN;
}

enum guest_encryption vmm_encryption(const struct vmm_process *process)
{
	enum guest_encryption encryption = qemu_encryption(process->pid);
	char enabled[4];

	if (encryption != GUEST_PLAIN)
		return encryption;
	return encryption_by_files(process->directory,
				   proc_read(AT_FDCWD, TDX_ENABLED, enabled, sizeof(enabled)) > 0 &&
					   *enabled == 'Y');
}
