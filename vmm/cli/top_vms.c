/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/top_vms.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shared/array.h"
#include "shared/error.h"
#include "shared/printable.h"
#include "shared/read_file.h"
#include "vmm/attach/process.h"
#include "vmm/attach/qemu_command_line.h"

/* Bytes of a report; ours are much smaller. */
#define REPORT_MAX (8ul << 20)
/* ms that a process has to end before it is killed. */
#define END_MS 3000

struct sampled_vm {
	struct top_vm vm;
	char name[QEMU_NAME_SIZE];
	char error[ERROR_MESSAGE_SIZE];
	pid_t worker; /* 0: it has ended */
	int fd;       /* -1: closed */
	char *text;   /* of the next report */
	size_t size, capacity;
	bool reported; /* since top_vms_expect_next() */
	bool found;    /* by the present scan */
};

struct top_vms {
	struct top_worker_options options;
	struct sampled_vm *list[TOP_VMS_MAX];
	size_t count;
	bool paused;
};

static void set_name(struct sampled_vm *sampled)
{
	char path[32];

	sampled->vm.name = sampled->name;
	if (!qemu_name(sampled->vm.pid, sampled->name)) {
		snprintf(path, sizeof(path), "/proc/%d/comm", sampled->vm.pid);
		read_small_file(AT_FDCWD, path, sampled->name, sizeof(sampled->name));
		sampled->name[strcspn(sampled->name, "\n")] = '\0';
	}
	make_printable(sampled->name);
}

/* An error is the VM's. */
static void start(const struct top_vms *vms, struct sampled_vm *sampled)
{
	struct top_worker_options options = vms->options;

	options.pid = sampled->vm.pid;
	options.vm = sampled->vm.fd;
	sampled->size = 0;
	sampled->fd = -1;
	sampled->worker = top_worker_start(&options, &sampled->fd);
	if (sampled->worker > 0)
		return;
	sampled->worker = 0;
	snprintf(sampled->error, sizeof(sampled->error), "%s", error_message());
}

static int add(struct top_vms *vms, pid_t pid, int vm_fd)
{
	struct sampled_vm *sampled;

	if (vms->count == TOP_VMS_MAX)
		return error_set(-EMFILE, "at most %d VMs are sampled at a time", TOP_VMS_MAX);
	sampled = calloc(1, sizeof(*sampled));
	if (!sampled)
		return error_set(-ENOMEM, "no memory for the VM of process %d", pid);
	sampled->vm = (struct top_vm){ .pid = pid, .fd = vm_fd, .error = sampled->error };
	set_name(sampled);
	top_vm_clear(&sampled->vm);
	start(vms, sampled);
	sampled->found = true;
	vms->list[vms->count++] = sampled;
	return 0;
}

/* Its process ends when its socket is closed. */
static void end(struct sampled_vm *sampled)
{
	if (sampled->fd >= 0)
		close(sampled->fd);
	sampled->fd = -1;
	for (int ms = 0; sampled->worker && ms <= END_MS; ms += 10) {
		if (waitpid(sampled->worker, NULL, WNOHANG) == sampled->worker)
			sampled->worker = 0;
		else
			usleep(10000);
	}
	if (!sampled->worker)
		return;
	kill(sampled->worker, SIGKILL);
	waitpid(sampled->worker, NULL, 0);
	sampled->worker = 0;
}

static void remove_at(struct top_vms *vms, size_t index)
{
	struct sampled_vm *sampled = vms->list[index];

	end(sampled);
	top_vm_clear(&sampled->vm);
	free(sampled->text);
	free(sampled);
	memmove(&vms->list[index], &vms->list[index + 1],
		(--vms->count - index) * sizeof(vms->list[0]));
}

/* Reports */

static void fail(struct sampled_vm *sampled, const char *message)
{
	snprintf(sampled->error, sizeof(sampled->error), "%s", message);
	make_printable(sampled->error);
}

static void receive_line(struct sampled_vm *sampled, const char *line, size_t size)
{
	json_t *report = json_loadb(line, size, 0, NULL);
	const char *error = json_string_value(json_object_get(report, "error"));

	if (error) {
		top_vm_clear(&sampled->vm);
		fail(sampled, error);
	} else if (top_vm_update(&sampled->vm, report)) {
		fail(sampled, error_message());
	} else {
		*sampled->error = '\0';
	}
	sampled->reported = true;
	json_decref(report);
}

/* PAUSED: they are dropped. */
static bool receive_lines(struct sampled_vm *sampled, bool paused)
{
	bool changed = false;
	char *end;

	while ((end = memchr(sampled->text, '\n', sampled->size))) {
		size_t size = (size_t)(end + 1 - sampled->text);

		if (!paused)
			receive_line(sampled, sampled->text, size);
		sampled->size -= size;
		memmove(sampled->text, sampled->text + size, sampled->size);
		changed |= !paused;
	}
	return changed;
}

/* Returns the number of bytes; 0: the end. */
static ssize_t read_more(struct sampled_vm *sampled)
{
	ssize_t got;

	if (sampled->size >= REPORT_MAX)
		return error_set(-E2BIG, "the report of process %d is too long", sampled->vm.pid);
	if (array_reserve(&sampled->text, &sampled->capacity, sampled->size + (64ul << 10)))
		return error_set(-ENOMEM, "no memory for the report of process %d",
				 sampled->vm.pid);
	got = recv(sampled->fd, sampled->text + sampled->size, sampled->capacity - sampled->size,
		   MSG_DONTWAIT);
	if (got >= 0 || errno == ECONNRESET)
		return got < 0 ? 0 : got;
	return error_set(-errno, "cannot receive the report of process %d: %m", sampled->vm.pid);
}

/* True if the VM has ended: its process closed the socket without an error. */
static bool receive(struct sampled_vm *sampled, bool paused, bool *changed)
{
	ssize_t got = read_more(sampled);

	if (got > 0) {
		sampled->size += (size_t)got;
		*changed |= receive_lines(sampled, paused);
		return false;
	}
	if (got == -EAGAIN || got == -EINTR)
		return false;
	if (got < 0)
		fail(sampled, error_message());
	end(sampled);
	*changed |= !paused;
	return !*sampled->error && !paused;
}

bool top_vms_receive(struct top_vms *vms, const struct pollfd *events, size_t count)
{
	bool changed = false;

	for (size_t event = 0; event < count; event++)
		for (size_t i = 0; i < vms->count && events[event].revents; i++)
			if (vms->list[i]->fd == events[event].fd) {
				if (receive(vms->list[i], vms->paused, &changed))
					remove_at(vms, i);
				break;
			}
	return changed;
}

size_t top_vms_events(const struct top_vms *vms, struct pollfd *events)
{
	size_t count = 0;

	for (size_t i = 0; i < vms->count; i++)
		if (vms->list[i]->fd >= 0)
			events[count++] =
				(struct pollfd){ .fd = vms->list[i]->fd, .events = POLLIN };
	return count;
}

/* VMs that come and go */

static struct sampled_vm *find(const struct top_vms *vms, pid_t pid, int vm_fd)
{
	for (size_t i = 0; i < vms->count; i++)
		if (vms->list[i]->vm.pid == pid && vms->list[i]->vm.fd == vm_fd)
			return vms->list[i];
	return NULL;
}

/* A VM that cannot be sampled may become ready: one that starts has no vCPUs. */
static bool visit(struct top_vms *vms, pid_t pid, int vm_fd)
{
	struct sampled_vm *sampled = find(vms, pid, vm_fd);

	if (!sampled)
		return !add(vms, pid, vm_fd);
	sampled->found = true;
	if (!sampled->worker)
		start(vms, sampled);
	return false;
}

/* The only VM of a process may get company: it is then another entry. */
static bool visit_process(struct top_vms *vms, pid_t pid)
{
	int fds[VMM_VMS_MAX];
	size_t count = process_list_vms(pid, fds);
	bool changed = false;

	for (size_t i = 0; i < count; i++)
		changed |= visit(vms, pid, count > 1 ? fds[i] : 0);
	return changed;
}

static bool drop_missing(struct top_vms *vms)
{
	bool changed = false;

	for (size_t i = vms->count; i-- > 0;)
		if (!vms->list[i]->found) {
			remove_at(vms, i);
			changed = true;
		}
	return changed;
}

bool top_vms_scan(struct top_vms *vms)
{
	pid_t pids[TOP_VMS_MAX];
	bool changed = false;
	size_t count;

	if (vms->options.pid)
		return false;
	for (size_t i = 0; i < vms->count; i++)
		vms->list[i]->found = false;
	count = vmm_process_list(pids, TOP_VMS_MAX);
	for (size_t i = 0; i < count; i++)
		changed |= visit_process(vms, pids[i]);
	return drop_missing(vms) || changed;
}

int top_vms_open(struct top_vms **result, const struct top_worker_options *options)
{
	struct top_vms *vms = calloc(1, sizeof(*vms));
	int error = 0;

	if (!vms)
		return error_set(-ENOMEM, "no memory for the VMs");
	vms->options = *options;
	if (options->pid)
		error = add(vms, options->pid, options->vm);
	else
		top_vms_scan(vms);
	if (error)
		top_vms_close(vms);
	else
		*result = vms;
	return error;
}

/* All sockets first: the processes end at the same time. */
void top_vms_close(struct top_vms *vms)
{
	if (!vms)
		return;
	for (size_t i = 0; i < vms->count; i++) {
		if (vms->list[i]->fd >= 0)
			close(vms->list[i]->fd);
		vms->list[i]->fd = -1;
	}
	while (vms->count)
		remove_at(vms, vms->count - 1);
	free(vms);
}

size_t top_vms_list(const struct top_vms *vms, struct top_vm **list)
{
	for (size_t i = 0; i < vms->count; i++)
		list[i] = &vms->list[i]->vm;
	top_vms_sort(list, vms->count);
	return vms->count;
}

bool top_vms_are_complete(const struct top_vms *vms)
{
	for (size_t i = 0; i < vms->count; i++)
		if (!vms->list[i]->reported && vms->list[i]->worker)
			return false;
	return true;
}

void top_vms_expect_next(struct top_vms *vms)
{
	for (size_t i = 0; i < vms->count; i++)
		vms->list[i]->reported = false;
}

void top_vms_set_interval(struct top_vms *vms, uint64_t interval)
{
	vms->options.interval = interval;
	for (size_t i = 0; i < vms->count; i++)
		if (vms->list[i]->fd >= 0)
			top_worker_set_interval(vms->list[i]->fd, interval);
}

void top_vms_set_paused(struct top_vms *vms, bool paused)
{
	vms->paused = paused;
}
