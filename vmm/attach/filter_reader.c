// SPDX-License-Identifier: Apache-2.0
#include "vmm/attach/filter_reader.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shared/error.h"
#include "vmm/attach/bpf/thread_filters.h"
#include "vmm/attach/bpf_library.h"
#include "vmm/attach/seccomp_filter.h"

#include "thread_filters.skel.h"

struct filter_reader {
	pthread_mutex_t lock;
	struct thread_filters *program;
};

static int load(struct filter_reader *reader)
{
	struct btf *kernel = bpf_library_types();
	int error = bpf_library_check_iterators(kernel);

	bpf_library_free_types(kernel);
	if (error)
		return error;
	reader->program = thread_filters__open_and_load();
	error = reader->program ? 0 : -errno;
	if (error == -EPERM) /* EACCES is the verifier's */
		return error_set(
			-EACCES,
			"BPF programs may not be loaded: that needs CAP_BPF and CAP_PERFMON");
	if (error)
		return error_set(-ENOTSUP, "this kernel does not load the BPF program (%s)",
				 strerror(-error));
	return 0;
}

int filter_reader_open(struct filter_reader **result)
{
	struct filter_reader *reader = calloc(1, sizeof(*reader));
	int error;

	if (!reader)
		return error_set(-ENOMEM, "no memory for reading seccomp filters");
	pthread_mutex_init(&reader->lock, NULL);
	error = load(reader);
	if (error)
		filter_reader_close(reader);
	else
		*result = reader;
	return error;
}

void filter_reader_close(struct filter_reader *reader)
{
	if (!reader)
		return;
	thread_filters__destroy(reader->program);
	pthread_mutex_destroy(&reader->lock);
	free(reader);
}

/* Nothing is read by it: it runs when it is read. */
static bool run(struct bpf_link *link)
{
	int fd = bpf_iter_create(bpf_link__fd(link));
	char nothing;
	bool ran;

	if (fd < 0)
		return false;
	ran = !read(fd, &nothing, sizeof(nothing));
	close(fd);
	return ran;
}

/* Filter NUMBER, from the newest on, of all that LINK's thread has. NULL: it can not be read. */
static const struct thread_filter *show(const struct filter_reader *reader, struct bpf_link *link,
					unsigned int number)
{
	struct thread_filter *shown = &reader->program->bss->shown;

	reader->program->bss->wanted = number;
	shown->of = shown->count = 0;
	return run(link) && shown->count && shown->count <= THREAD_FILTER_MAX ? shown : NULL;
}

static int check(const struct filter_reader *reader, struct bpf_link *link, unsigned int filters,
		 const struct seccomp_data *calls, size_t count)
{
	for (unsigned int i = 0; i < filters; i++) {
		const struct thread_filter *shown = show(reader, link, i);

		if (!shown || shown->of != filters)
			return -EPERM;
		if (!seccomp_filter_passes(shown->instructions, shown->count, calls, count))
			return -EACCES;
	}
	return filters ? 0 : -EPERM;
}

int filter_reader_check(struct filter_reader *reader, pid_t tid, unsigned int filters,
			const struct seccomp_data *calls, size_t count)
{
	union bpf_iter_link_info which = { .task.tid = (__u32)tid };
	LIBBPF_OPTS(bpf_iter_attach_opts, options, .link_info = &which,
		    .link_info_len = sizeof(which));
	struct bpf_link *link;
	int error;

	pthread_mutex_lock(&reader->lock);
	link = bpf_program__attach_iter(reader->program->progs.find_filter, &options);
	error = link ? check(reader, link, filters, calls, count) : -EPERM;
	bpf_link__destroy(link);
	pthread_mutex_unlock(&reader->lock);
	return error;
}
