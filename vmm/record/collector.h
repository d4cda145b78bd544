/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The collector: one thread that drains the rings of all vCPUs into a
 * perf.data file, finds the guest's kernel in the meantime, and hands it
 * to whoever takes samples. It knows neither KVM nor the
 * sampler: rings, guest memory and registers come in through the options.
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

struct collector;

/* A file that a collector has ended. */
struct collector_file {
	const char *path;
	uint64_t samples;
	int error; /* 0: it is complete. Else it could not be written to its end, the message is set
		    */
};

/*
 * A recording in many files, one after the other, for somebody who keeps them. All functions are
 * called on the collector's thread, but begin() for the first file in collector_start() and end()
 * for the last one in collector_stop(). A guest that begins to run another kernel gets its next
 * file at once. No error of writing ends such a recording: end() is told. Each file begins with
 * what sideband told before it of processes that still live: it is whole by itself.
 */
struct collector_files {
	/*
	 * Puts the path of the next file into PATH. An error: there is to be none now; nothing is
	 * recorded, and it is asked again INTERVAL later.
	 */
	int (*begin)(void *context, char *path, size_t size);
	/* Takes over the file that begin() named last. */
	void (*end)(void *context, const struct collector_file *file);
	const struct perf_data_room *room; /* NULL: none is kept */
	uint64_t interval;                 /* ns that a file is of */
	void *context;                     /* of begin() and end() */
};

struct collector_options {
	/* One for each vCPU (output.vcpus), in order; where several take its samples, each has one
	 * so. Readable until collector_stop(). */
	struct ring *const *rings;
	size_t ring_count;
	/*
	 * Of sources that tell what happens in the guest (shared/sideband_record.h), one
	 * writer each; NULL and 0 without one. Readable until collector_stop().
	 */
	struct ring *const *sideband_rings;
	size_t sideband_ring_count;
	/* For all that is kept of what the guest tells; NULL: without a limit. Outlives the
	 * collector. */
	struct guest_account *account;
	const struct guest_view *view; /* readable until collector_stop() returns */

	/*
	 * The registers of the latest stop of some vCPU, for finding the kernel and for seeing
	 * that it still runs; false while there are none. Called on the collector's thread.
	 */
	bool (*registers)(void *context, struct guest_registers *registers);
	/*
	 * Takes the kernel that was found, for the samples from now on: its
	 * unwinder, and where its tasks are. One that a newer one replaces stays
	 * valid until settle() has come back: so a vCPU is to look which one to
	 * use for each sample anew. The last stays valid until collector_stop().
	 * Called on the collector's thread; may be NULL.
	 */
	void (*publish)(void *context, const struct guest_kernel *kernel);
	/*
	 * The kernel that was published last runs no more: by a kexec, as far as could be told, or
	 * by a reset. Nothing is known of addresses until the next publish(), which may be of the
	 * same one. publish(NULL) comes behind it if no vCPU runs. Called on the collector's
	 * thread; may be NULL.
	 */
	void (*lost)(void *context);
	/*
	 * The guest's modules are the COUNT ones of LIST by now; publish() follows when their
	 * symbols have been read, which may take long, of the same kernel if they are its modules
	 * again. Names and places alone. LIST NULL: which there are is not known from here on,
	 * until another kernel runs; it is told again before a publish() of the same one. Called on
	 * the collector's thread; may be NULL.
	 */
	void (*modules)(void *context, const struct guest_module *list, size_t count);
	/* Called each time the rings were looked at, on the collector's thread; may be NULL. */
	void (*turn)(void *context);
	/*
	 * A file was mapped in a process of the guest, as a source tells; its build id may be not
	 * known. Called on the collector's thread as soon as it is told; may be NULL.
	 */
	void (*mapped)(void *context, const struct sideband_mmap *mapping);
	/*
	 * What the guest's agent tells of the kernel, the collector's from then on; NULL: nothing
	 * yet, and it is asked again, as the modules are not those of MODULES_HASH
	 * (reported_kernel.h; 0: nothing is known). Called where guest memory does not tell it all,
	 * on the collector's thread; may be NULL.
	 */
	struct reported_kernel *(*told)(void *context, uint64_t modules_hash);
	/*
	 * Tasks of the guest whose values are known, of which its agent has told since
	 * (reported_tasks.h). -EAGAIN: nothing yet; with ASK it is asked for some, if it has not
	 * been: -EOPNOTSUPP, none is there now that could tell any. Other errors: the agent's
	 * answer, once. Called where the kernel has no BTF, on the collector's thread; may be NULL.
	 */
	int (*tasks)(void *context, bool ask, struct reported_tasks *told);
	/*
	 * What a watch counted on a vCPU so far; false: nothing yet. Called on the collector's
	 * thread, at each round's end; may be NULL.
	 */
	bool (*count)(void *context, unsigned int watch, unsigned int vcpu,
		      struct perf_data_count *count);
	void *context; /* of all */

	/*
	 * ns that a sample may come into its ring after it was taken, besides what a vCPU's own
	 * thread needs, and that what sideband tells of it may be later than it; 0 where that takes
	 * them itself.
	 */
	uint64_t delay;
	/*
	 * Comes back when no sample that was begun before the call is worked on any more: nobody
	 * uses what was replaced by then, of kernels and of the modules of one. Called on the
	 * collector's thread; NULL: publish() gives them to nobody else.
	 */
	void (*settle)(void *context);

	struct perf_data_options output;
	const struct collector_files
		*files; /* outlives the collector; NULL: one file, output.path */
	/*
	 * NULL: all samples are written as they come. Else the collector is a
	 * flight recorder, and the rings are in overwrite mode: see flight_recorder.h.
	 */
	const struct flight_options *flight;
	const char *kallsyms; /* names from this file instead of from the guest; NULL */
	const char *vmlinux;  /* names from this ELF file; NULL */
	const char *btf; /* BTF from this file, for a kernel that has none in its memory; NULL */
	const char *btf_hint; /* how the user gives that, "--btf FILE gives it"; NULL: he can not */
	const char *symfs;  /* unwind tables of user images from the guest's files here too; NULL */
	bool buildid_cache; /* put names where perf looks for them */
	const struct build_id_cache_location *names; /* or there; NULL: in perf's place */
};

struct collector_statistics {
	uint64_t samples;  /* written to the file, while it has not ENDED, or seen by the flight
			      recorder;  those of the host, too */
	uint64_t readable; /* of them that a reader of the file, or files, finds by now; not of a
			      flight recorder */
	uint64_t readable_here; /* of those, in the file that is written now */
	uint64_t host;          /* of them taken outside of the guest */
	uint64_t kernel;        /* of them taken at CPL 0 */
	uint64_t lost;          /* dropped because a ring was full, or by their source */
	uint64_t bytes;         /* of the file, or all files, so far */
	unsigned int files;     /* of the recording: 1, and one for each kernel behind the first */
	bool ended;      /* by an error, which was told: samples behind READABLE are not written */
	uint64_t cost;   /* ns that taking all samples cost the vCPU threads */
	uint64_t weight; /* ns that all samples stand for */
	bool kernel_found;    /* names are there: found in the guest or given by a file */
	char release[65];     /* of the guest's kernel, "" while it is not known */
	struct losses losses; /* of all kinds */
};

/*
 * Opens the file and starts the thread. Errors: those of
 * perf_data_writer_open() or flight_create(), of reading the symbol files, and of making a
 * thread. The options are copied, what they point to is not: it must live
 * until collector_stop() returns.
 */
int collector_start(struct collector **collector, const struct collector_options *options);

/*
 * The guest is about to be reset: all that was sampled until now is of the kernel
 * that it had. The file is completed, and the next one begun: a perf.data
 * file has one kernel (docs/perf-data.md, "More than one kernel"). Comes back when that is done.
 * To be called while guest memory is still as the kernel left it, and no vCPU thread
 * runs. Errors of writing are told by collector_stop().
 */
void collector_reset(struct collector *collector);

/* Any thread, at any time between start and stop. */
void collector_statistics(struct collector *collector, struct collector_statistics *statistics);

/*
 * Drains what is left, brings symbols up to date, closes the file (or writes
 * the flight recordings that are due), ends the
 * thread and frees the collector. To be called when the vCPU threads have
 * ended: nobody may write to the rings or use an unwinder any more.
 * STATISTICS (may be NULL) gets the final counts. Returns the first error of
 * writing, with its message; the collector is gone in any case.
 */
int collector_stop(struct collector *collector, struct collector_statistics *statistics);

#endif
