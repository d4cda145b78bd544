/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The collector: one thread that drains the rings of all vCPUs into a perf.data file, finds the
 * guest's kernel, and passes it to the sampler. It depends neither on KVM nor on the sampler:
 * rings, guest memory and registers come in through the options.
 *
 *	vCPU thread --sample--> ring --> collector --> perf.data, build-id cache
 *	            <-- kernel ---------'   ^--- guest memory, registers
 */
#ifndef KVMSCOPE_RECORD_COLLECTOR_H
#define KVMSCOPE_RECORD_COLLECTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/loss_counts.h"
#include "shared/ring.h"
#include "vmm/guest/guest_account.h"
#include "vmm/guest/guest_registers.h"
#include "vmm/guest/guest_view.h"
#include "vmm/guest/linux/guest_kernel.h"
#include "vmm/guest/reported_tasks.h"
#include "vmm/perf_data/perf_data_writer.h"
#include "vmm/record/flight_recorder.h"
#include "vmm/record/image_parser.h"

struct collector;

/* A file that the collector has closed. */
struct collector_file {
	const char *path;
	uint64_t samples;
	int error; /* 0: it is complete; else it is not, and error_message() is set */
};

/*
 * A recording in many files, one after the other, which the caller keeps. The functions are called
 * on the collector's thread, except begin() for the first file in collector_start() and end() for
 * the last one in collector_stop(). A guest that starts another kernel gets its next file at once.
 * An error of writing does not end such a recording: end() receives it. Each file begins with the
 * earlier events of processes that are still alive: it is complete by itself.
 */
struct collector_files {
	/* Puts the path of the next file into PATH. An error: no file now; nothing is recorded, and
	 * it is called again after INTERVAL. */
	int (*begin)(void *context, char *path, size_t size);
	/* Receives the file that begin() named last. */
	void (*end)(void *context, const struct collector_file *file);
	const struct perf_data_room *room; /* NULL: none is kept */
	uint64_t interval;                 /* ns, length of a file */
	void *context;                     /* of begin() and end() */
};

struct collector_options {
	/* One per vCPU (output.vcpus), in order, or several such groups, if more than one
	 * thread samples a vCPU. Readable until collector_stop(). */
	struct ring *const *rings;
	size_t ring_count;
	/* Of sources that report guest events (shared/sideband_record.h), one writer each; NULL and
	 * 0 without one. Readable until collector_stop(). */
	struct ring *const *sideband_rings;
	size_t sideband_ring_count;
	/* Charged for everything that the guest reports; NULL: no limit. Outlives the
	 * collector. */
	struct guest_account *account;
	const struct guest_view *view; /* readable until collector_stop() returns */

	/* The registers of the latest stop of some vCPU, for finding the kernel and checking that
	 * it still runs; false while there are none. Collector thread. */
	bool (*registers)(void *context, struct guest_registers *registers);
	/*
	 * Receives the kernel for samples from now on: its unwinder, and the layout of its tasks. A
	 * replaced kernel stays valid until settle() has returned, so a vCPU gets the present one
	 * for each sample. The last one stays valid until collector_stop(). Collector thread; may
	 * be NULL.
	 */
	void (*publish)(void *context, const struct guest_kernel *kernel);
	/*
	 * The kernel that was published last no longer runs: after a kexec, as far as that can be
	 * detected, or a reset. Addresses are unknown until the next publish(), which may be of the
	 * same kernel. publish(NULL) follows if no vCPU runs. Collector thread; may be NULL.
	 */
	void (*lost)(void *context);
	/*
	 * The guest's modules are now the COUNT ones of LIST, names and addresses only. publish()
	 * follows when their symbols have been read, which may take long, or if the modules are
	 * those of the published kernel again. LIST NULL: modules are unknown until another kernel
	 * runs; this is repeated before a publish() of the same kernel. Collector thread; may be
	 * NULL.
	 */
	void (*modules)(void *context, const struct guest_module *list, size_t count);
	/* Called after each drain of the rings, on the collector's thread; may be NULL. */
	void (*drained)(void *context);
	/* A source reported that a process mapped a file, whose build id may be unknown. Called at
	 * once, on the collector's thread; may be NULL. */
	void (*mapped)(void *context, const struct sideband_mmap *mapping);
	/*
	 * The agent's report on the kernel, owned by the collector from then on; NULL: none yet. It
	 * is requested again if the modules are not those of MODULES_HASH (reported_kernel.h; 0:
	 * unknown). Called where guest memory does not suffice, on the collector's thread; may be
	 * NULL.
	 */
	struct reported_kernel *(*kernel_report)(void *context, uint64_t modules_hash);
	/*
	 * Receives the guest tasks that the agent has reported (reported_tasks.h). ASK requests
	 * them, unless a request is pending. -EAGAIN: none yet; -EOPNOTSUPP: no agent can report
	 * them now; other errors: the agent's answer, returned once. Called where the kernel has no
	 * BTF, on the collector's thread; may be NULL.
	 */
	int (*tasks)(void *context, bool ask, struct reported_tasks *reported);
	/* The count of a watch on a vCPU so far; false: none yet. Called at the end of each round,
	 * on the collector's thread; may be NULL. */
	bool (*count)(void *context, unsigned int watch, unsigned int vcpu,
		      struct perf_data_count *count);
	/* The wall times of the vCPUs so far, zeroed before. As count(). */
	void (*times)(void *context, struct perf_data_times *times);
	void *context; /* of all */

	/* ns that a sample may reach its ring late, beyond what a vCPU's own thread needs, and that
	 * related sideband may be late; 0 if vCPU threads record samples themselves. */
	uint64_t delay;
	/*
	 * Returns when no sample that was begun before the call is in progress: replaced kernels
	 * and modules are no longer in use then. Collector thread; NULL: nothing else uses what
	 * publish() passes on.
	 */
	void (*settle)(void *context);

	struct perf_data_options output;
	const struct collector_files
		*files; /* outlives the collector; NULL: one file, output.path */
	/* NULL: samples are written as they come. Else the collector is a flight recorder, with
	 * rings in overwrite mode: see flight_recorder.h. */
	const struct flight_options *flight;
	const char *kallsyms; /* symbols from this file instead of the guest; NULL */
	const char *vmlinux;  /* symbols from this ELF file; NULL */
	const char *btf;      /* BTF from this file, for a kernel without BTF in memory; NULL */
	const char *btf_hint; /* how a user provides it, "--btf FILE"; NULL: there is no way */
	const char *symfs;    /* host directory with the guest's files, for unwind tables; NULL */
	struct image_parser *parser; /* outlives the collector; NULL: threads (image_parser.h) */
	bool buildid_cache;          /* put symbols where perf finds them */
	const struct build_id_cache_location *names; /* or there; NULL: perf's location */
};

struct collector_statistics {
	uint64_t samples; /* written while the file has not ENDED, or passed to the flight recorder;
			     those of the host, too */
	uint64_t readable;      /* of them, those that readers of the files find by now; not with a
				   flight recorder */
	uint64_t readable_here; /* of those, in the present file */
	uint64_t host;          /* of SAMPLES, those outside of the guest */
	uint64_t kernel;        /* of SAMPLES, those at CPL 0 */
	uint64_t lost;          /* dropped by a full ring, or by their source */
	uint64_t bytes;         /* of all files so far */
	unsigned int files;     /* 1, and one for each kernel after the first */
	bool ended;             /* by an error, which was logged: samples after READABLE are lost */
	uint64_t cost;          /* ns that all samples cost the vCPU threads */
	uint64_t weight;        /* ns that all samples stand for */
	bool kernel_found;      /* symbols are known: found in the guest or given by a file */
	char release[65];       /* of the guest's kernel; "" while unknown */
	struct losses losses;   /* by kind */
};

/*
 * Opens the file and starts the thread. Errors: those of perf_data_writer_open() or
 * flight_create(), of reading symbol files, and of creating a thread. The options are copied; what
 * they point to must live until collector_stop() returns.
 */
int collector_start(struct collector **collector, const struct collector_options *options);

/*
 * The guest is about to be reset: everything sampled until now belongs to its present kernel. The
 * file is completed, and the next one begun: a perf.data file has one kernel (docs/perf-data.md,
 * "More than one kernel"). Returns when that is done. Call it while guest memory is unchanged and
 * no vCPU thread runs. Errors of writing are returned by collector_stop().
 */
void collector_reset(struct collector *collector);

/* Any thread, at any time between start and stop. */
void collector_statistics(struct collector *collector, struct collector_statistics *statistics);

/*
 * Drains the rings, updates symbols, closes the file (or writes pending flight recordings), ends
 * the thread and frees the collector. Call it when the vCPU threads have ended: nothing may write
 * to the rings or use an unwinder. STATISTICS (may be NULL) receives the final counts. Returns the
 * first error of writing, with its message; the collector is freed in any case.
 */
int collector_stop(struct collector *collector, struct collector_statistics *statistics);

#endif
