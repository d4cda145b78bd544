/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/attach/seccomp_filter.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <unistd.h>

#include "shared/error.h"
#include "vmm/attach/bpf/thread_filters.h"
#include "vmm/attach/bpf_library.h"

#include "thread_filters.skel.h"

#ifndef PTRACE_SECCOMP_GET_FILTER
#define PTRACE_SECCOMP_GET_FILTER 0x420c
#endif

/* Limit of all filters together: MAX_INSNS_PER_PATH instructions (kernel/seccomp.c). */
#define FILTERS_MAX 1024

struct machine {
	const struct seccomp_data *call;
	__u32 a, x;
	__u32 memory[BPF_MEMWORDS];
};

static __u32 load_word(const struct machine *machine, __u32 offset)
{
	__u32 word = 0;

	if (offset <= sizeof(*machine->call) - sizeof(word) && !(offset & 3))
		memcpy(&word, (const char *)machine->call + offset, sizeof(word));
	return word;
}

static __u32 load(const struct machine *machine, const struct sock_filter *at)
{
	switch (BPF_MODE(at->code)) {
	case BPF_ABS:
		return load_word(machine, at->k);
	case BPF_LEN:
		return sizeof(*machine->call);
	case BPF_MEM:
		return at->k < BPF_MEMWORDS ? machine->memory[at->k] : 0;
	default:
		return at->k;
	}
}

static __u32 compute(const struct machine *machine, const struct sock_filter *at)
{
	__u32 value = BPF_SRC(at->code) == BPF_X ? machine->x : at->k, a = machine->a;

	switch (BPF_OP(at->code)) {
	case BPF_ADD:
		return a + value;
	case BPF_SUB:
		return a - value;
	case BPF_MUL:
		return a * value;
	case BPF_DIV:
		return value ? a / value : 0;
	case BPF_AND:
		return a & value;
	case BPF_OR:
		return a | value;
	case BPF_XOR:
		return a ^ value;
	case BPF_LSH:
		return value < 32 ? a << value : 0;
	case BPF_RSH:
		return value < 32 ? a >> value : 0;
	case BPF_NEG:
		return -a;
	default:
		return a;
	}
}

/* Returns the number of skipped instructions. */
static __u32 jump(const struct machine *machine, const struct sock_filter *at)
{
	__u32 value = BPF_SRC(at->code) == BPF_X ? machine->x : at->k;

	switch (BPF_OP(at->code)) {
	case BPF_JA:
		return at->k;
	case BPF_JEQ:
		return machine->a == value ? at->jt : at->jf;
	case BPF_JGT:
		return machine->a > value ? at->jt : at->jf;
	case BPF_JGE:
		return machine->a >= value ? at->jt : at->jf;
	default:
		return machine->a & value ? at->jt : at->jf;
	}
}

static void step(struct machine *machine, const struct sock_filter *at)
{
	switch (BPF_CLASS(at->code)) {
	case BPF_LD:
		machine->a = load(machine, at);
		break;
	case BPF_LDX:
		machine->x = load(machine, at);
		break;
	case BPF_ST:
	case BPF_STX:
		if (at->k < BPF_MEMWORDS)
			machine->memory[at->k] =
				BPF_CLASS(at->code) == BPF_ST ? machine->a : machine->x;
		break;
	case BPF_ALU:
		machine->a = compute(machine, at);
		break;
	case BPF_MISC:
		if (BPF_MISCOP(at->code) == BPF_TAX)
			machine->x = machine->a;
		else
			machine->a = machine->x;
		break;
	default:
		break;
	}
}

/* Terminates, as all jumps are forward. */
__u32 seccomp_filter_run(const struct sock_filter *filter, size_t count,
			 const struct seccomp_data *call)
{
	struct machine machine = { .call = call };

	for (size_t i = 0; i < count; i++) {
		const struct sock_filter *at = &filter[i];

		if (BPF_CLASS(at->code) == BPF_RET)
			return BPF_RVAL(at->code) == BPF_A ? machine.a : at->k;
		if (BPF_CLASS(at->code) == BPF_JMP)
			i += jump(&machine, at);
		else
			step(&machine, at);
	}
	return SECCOMP_RET_KILL_PROCESS;
}

static bool passes(__u32 result)
{
	__u32 action = result & SECCOMP_RET_ACTION_FULL;

	return action == SECCOMP_RET_ALLOW || action == SECCOMP_RET_LOG;
}

bool seccomp_filter_passes(const struct sock_filter *filter, size_t length,
			   const struct seccomp_data *calls, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (!passes(seccomp_filter_run(filter, length, &calls[i])))
			return false;
	return true;
}

/* The kernel numbers filters from the oldest on. */
int seccomp_filters_check(pid_t tid, const struct seccomp_data *calls, size_t count)
{
	static _Thread_local struct sock_filter filter[BPF_MAXINSNS];

	for (size_t i = 0; i < FILTERS_MAX; i++) {
		long length =
			ptrace((enum __ptrace_request)PTRACE_SECCOMP_GET_FILTER, tid, i, NULL);

		if (length < 0 && errno == ENOENT)
			return 0;
		if (length < 0 || length > BPF_MAXINSNS ||
		    ptrace((enum __ptrace_request)PTRACE_SECCOMP_GET_FILTER, tid, i, filter) !=
			    length)
			return -EPERM;
		if (!seccomp_filter_passes(filter, (size_t)length, calls, count))
			return -EACCES;
	}
	return -EPERM;
}

struct filter_reader {
	pthread_mutex_t lock;
	struct thread_filters *program;
};

static int load_program(struct filter_reader *reader)
{
	struct btf *kernel = bpf_library_types();
	int error = bpf_library_check_iterators(kernel);

	bpf_library_free_types(kernel);
	if (error)
		return error;
	reader->program = thread_filters__open_and_load();
	error = reader->program ? 0 : -errno;
	if (error == -EPERM) /* EACCES comes from the verifier */
		return error_set(
			-EACCES,
			"BPF programs may not be loaded: CAP_BPF and CAP_PERFMON are missing");
	if (error)
		return error_set(-ENOTSUP, "this kernel rejects the BPF program (%s)",
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
	error = load_program(reader);
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

/* The program runs on read(), which returns no data. */
static bool run_iterator(struct bpf_link *link)
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

/* Reads filter NUMBER, from the newest on, of LINK's thread. NULL: unreadable. */
static const struct thread_filter *read_filter(const struct filter_reader *reader,
					       struct bpf_link *link, unsigned int number)
{
	struct thread_filter *shown = &reader->program->bss->shown;

	reader->program->bss->filter_index = number;
	shown->of = shown->count = 0;
	return run_iterator(link) && shown->count && shown->count <= THREAD_FILTER_MAX ? shown
										       : NULL;
}

static int check_each(const struct filter_reader *reader, struct bpf_link *link,
		      unsigned int filters, const struct seccomp_data *calls, size_t count)
{
	for (unsigned int i = 0; i < filters; i++) {
		const struct thread_filter *shown = read_filter(reader, link, i);

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
	error = link ? check_each(reader, link, filters, calls, count) : -EPERM;
	bpf_link__destroy(link);
	pthread_mutex_unlock(&reader->lock);
	return error;
}
