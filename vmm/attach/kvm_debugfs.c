/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/attach/kvm_debugfs.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "vmm/attach/proc_files.h"

#define KVM_DIRECTORY "/sys/kernel/debug/kvm"

/* Any thread of the process may have created the VM. */
bool kvm_directory_find(struct kvm_directory *directory, int process, int vm_fd)
{
	DIR *all = opendir(KVM_DIRECTORY);
	const struct dirent *entry;
	bool found = false;
	int tid, fd;

	while (all && !found && (entry = readdir(all)))
		if (sscanf(entry->d_name, "%d-%d", &tid, &fd) == 2 && fd == vm_fd &&
		    proc_has_thread(process, tid))
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

static int open_count(const struct kvm_directory *directory, const char *name)
{
	char path[96];

	snprintf(path, sizeof(path), "%s/%s", directory->path, name);
	return open(path, O_RDONLY | O_CLOEXEC);
}

bool nested_runs_open(struct nested_runs *runs, int process, int vm_fd)
{
	struct kvm_directory directory;

	*runs = (struct nested_runs){ .entered_fd = -1, .inside_fd = -1 };
	if (!kvm_directory_find(&directory, process, vm_fd))
		return false;
	runs->entered_fd = open_count(&directory, "nested_run");
	runs->inside_fd = open_count(&directory, "guest_mode");
	return runs->entered_fd >= 0 && runs->inside_fd >= 0;
}

void nested_runs_close(struct nested_runs *runs)
{
	if (runs->entered_fd >= 0)
		close(runs->entered_fd);
	if (runs->inside_fd >= 0)
		close(runs->inside_fd);
	runs->entered_fd = runs->inside_fd = -1;
}

static bool read_count(int fd, uint64_t *count)
{
	char text[32];
	ssize_t length = fd < 0 ? -1 : pread(fd, text, sizeof(text) - 1, 0);

	text[length > 0 ? length : 0] = '\0';
	return sscanf(text, "%" SCNu64, count) == 1;
}

struct nested_count nested_runs_read(const struct nested_runs *runs)
{
	struct nested_count count = { 0 };

	count.known = read_count(runs->entered_fd, &count.entered) &&
		      read_count(runs->inside_fd, &count.inside);
	return count;
}

bool nested_runs_between(const struct nested_count *first, const struct nested_count *last)
{
	return first->known && last->known &&
	       (first->inside || last->inside || first->entered != last->entered);
}
