/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/kvm/statistics.h"

#include <errno.h>
#include <linux/kvm.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "vmm/kvm/vcpu.h"

#define NAME_MAX_SIZE 128

/* struct kvm_stats_desc with its name, which has name_size bytes in the file. */
struct named_descriptor {
	struct kvm_stats_desc descriptor;
	char name[NAME_MAX_SIZE];
};

static int find(int fd, const char *name, off_t *offset)
{
	struct kvm_stats_header header;
	struct named_descriptor entry;

	if (pread(fd, &header, sizeof(header), 0) != sizeof(header) ||
	    header.name_size > NAME_MAX_SIZE)
		return -ENOTSUP;
	for (uint32_t i = 0; i < header.num_desc; i++) {
		size_t size = sizeof(entry.descriptor) + header.name_size;

		if (pread(fd, &entry, size, (off_t)(header.desc_offset + i * size)) !=
		    (ssize_t)size)
			return -ENOTSUP;
		if (strncmp(entry.name, name, header.name_size) != 0)
			continue;
		*offset = (off_t)header.data_offset + entry.descriptor.offset;
		return 0;
	}
	return -ENOTSUP;
}

int vcpu_statistic_open(struct vcpu_statistic *statistic, const struct vcpu *vcpu, const char *name)
{
	int error;

	statistic->fd = ioctl(vcpu->fd, KVM_GET_STATS_FD, NULL);
	if (statistic->fd < 0) {
		statistic->fd = -1;
		return -ENOTSUP;
	}
	error = find(statistic->fd, name, &statistic->offset);
	if (error)
		vcpu_statistic_close(statistic);
	return error;
}

uint64_t vcpu_statistic_read(const struct vcpu_statistic *statistic)
{
	uint64_t value;

	if (statistic->fd < 0 ||
	    pread(statistic->fd, &value, sizeof(value), statistic->offset) != sizeof(value))
		return 0;
	return value;
}

void vcpu_statistic_close(struct vcpu_statistic *statistic)
{
	if (statistic->fd >= 0)
		close(statistic->fd);
	statistic->fd = -1;
}
