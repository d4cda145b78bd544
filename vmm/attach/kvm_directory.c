// SPDX-License-Identifier: Apache-2.0
#include "vmm/attach/kvm_directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "vmm/attach/proc_files.h"

#define KVM_DIRECTORY "/sys/kernel/debug/kvm"

/* Any of the process's threads may have made the VM. */
bool kvm_directory_find(struct kvm_directory *directory, const struct vmm_process *process,
			int vm_fd)
{
	DIR *all = opendir(KVM_DIRECTORY);
	const struct dirent *entry;
	bool found = false;
	int tid, fd;

	while (all && !found && (entry = readdir(all)))
		if (sscanf(entry->d_name, "%d-%d", &tid, &fd) == 2 && fd == vm_fd &&
		    vmm_process_has_thread(process, tid))
			found = snprintf(directory->path, sizeof(directory->path), "%s/%d-%d",
					 KVM_DIRECTORY, tid, fd) < (int)sizeof(directory->path);
	if (all)
		closedir(all);
	return found;
}

bool kvm_directory_has_vcpu(const struct kvm_directory *directory, unsigned int id)
{
	char path[96];

	snprintf(path, sizeof(path), "%s/vcpu%u", directory->path, id);
	return !access(path, F_OK);
}

pid_t kvm_directory_thread(const struct kvm_directory *directory, unsigned int id)
{
	char path[96], text[32];

	snprintf(path, sizeof(path), "%s/vcpu%u/pid", directory->path, id);
	return proc_read(AT_FDCWD, path, text, sizeof(text)) > 0 ? atoi(text) : 0;
}
