/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/devices/virtio_blk.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/virtio_blk.h>
#include <linux/virtio_ids.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "shared/error.h"

#define QUEUE_REQUESTS 0
#define SECTOR_SIZE    512

/* A request's header and status need two descriptors of the chain. */
#define SEGMENTS_MAX (VIRTIO_QUEUE_SIZE_MAX - 2)

struct virtio_blk {
	struct virtio_device device;
	int fd;
	bool read_only;
	char id[VIRTIO_BLK_ID_BYTES]; /* padded with zeros, not terminated when full */
	struct virtio_blk_config config;
	struct virtio_chain chain;
};

/* True if DATA is whole sectors that the image has, from SECTOR on. */
static bool in_image(const struct virtio_blk *blk, uint64_t sector,
		     const struct virtio_buffers *data)
{
	uint64_t sectors = data->size / SECTOR_SIZE;

	return data->size % SECTOR_SIZE == 0 && sector <= blk->config.capacity &&
	       sectors <= blk->config.capacity - sector;
}

static bool transfer(struct virtio_blk *blk, uint64_t sector, bool write,
		     struct virtio_buffers *data)
{
	off_t offset = (off_t)(sector * SECTOR_SIZE);

	if (!in_image(blk, sector, data))
		return false;
	while (data->count) {
		ssize_t done = write ? pwritev(blk->fd, data->vectors, (int)data->count, offset)
				     : preadv(blk->fd, data->vectors, (int)data->count, offset);

		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return false; /* 0: the image has shrunk */
		virtio_buffers_advance(data, (uint64_t)done);
		offset += done;
	}
	return true;
}

static bool flush(const struct virtio_blk *blk)
{
	return blk->read_only || !fdatasync(blk->fd);
}

static bool write_data(struct virtio_blk *blk, uint64_t sector, struct virtio_buffers *data)
{
	if (blk->read_only || !transfer(blk, sector, true, data))
		return false;
	return virtio_device_negotiated(&blk->device, VIRTIO_BLK_F_FLUSH) || flush(blk);
}

static uint8_t serve(struct virtio_blk *blk, const struct virtio_blk_outhdr *header,
		     struct virtio_chain *chain)
{
	bool done;

	switch (header->type) {
	case VIRTIO_BLK_T_IN:
		done = transfer(blk, header->sector, false, &chain->writable);
		break;
	case VIRTIO_BLK_T_OUT:
		done = write_data(blk, header->sector, &chain->readable);
		break;
	case VIRTIO_BLK_T_FLUSH:
		done = flush(blk);
		break;
	case VIRTIO_BLK_T_GET_ID:
		done = virtio_buffers_write(&chain->writable, blk->id, sizeof(blk->id)) ==
		       sizeof(blk->id);
		break;
	default:
		return VIRTIO_BLK_S_UNSUPP;
	}
	return done ? VIRTIO_BLK_S_OK : VIRTIO_BLK_S_IOERR;
}

/* The reported length covers all bytes, so all are written. */
static void clear_rest(struct virtio_buffers *buffers)
{
	for (unsigned int i = 0; i < buffers->count; i++)
		memset(buffers->vectors[i].iov_base, 0, buffers->vectors[i].iov_len);
}

static void serve_chain(struct virtio_blk *blk, struct virtio_chain *chain)
{
	uint64_t writable = chain->writable.size;
	uint8_t *status = virtio_buffers_cut_last(&chain->writable);
	struct virtio_blk_outhdr header;

	if (!status ||
	    virtio_buffers_read(&chain->readable, &header, sizeof(header)) != sizeof(header)) {
		virtio_device_fault(&blk->device, "a request without header or status");
		return;
	}
	*status = serve(blk, &header, chain);
	clear_rest(&chain->writable);
	virtio_device_push(&blk->device, QUEUE_REQUESTS, chain, (uint32_t)writable);
}

/* A driver that adds requests forever must not block the loop for other devices. */
static void notify(struct virtio_device *device, unsigned int queue)
{
	struct virtio_blk *blk = (struct virtio_blk *)device;
	unsigned int served = 0;

	while (served < VIRTIO_QUEUE_SIZE_MAX &&
	       virtio_device_pop(device, QUEUE_REQUESTS, &blk->chain)) {
		serve_chain(blk, &blk->chain);
		served++;
	}
	virtio_device_interrupt(device, QUEUE_REQUESTS);
	if (served == VIRTIO_QUEUE_SIZE_MAX)
		virtio_device_notify(device, QUEUE_REQUESTS);
}

static void destroy(struct virtio_device *device)
{
	struct virtio_blk *blk = (struct virtio_blk *)device;

	if (blk->fd >= 0)
		close(blk->fd);
	virtio_device_release(device);
	free(blk);
}

static const struct virtio_device_operations operations = {
	.name = "virtio-blk",
	.id = VIRTIO_ID_BLOCK,
	.notify = notify,
	.destroy = destroy,
};

/* A file system without lock support is not an error. */
static int lock_image(const struct virtio_blk *blk, const char *path)
{
	struct flock lock = { .l_type = blk->read_only ? F_RDLCK : F_WRLCK, .l_whence = SEEK_SET };

	if (fcntl(blk->fd, F_OFD_SETLK, &lock) && (errno == EAGAIN || errno == EACCES))
		return error_set(-EBUSY, "another VM uses disk image %s; stop it, or use a copy",
				 path);
	return 0;
}

static int open_image(struct virtio_blk *blk, const char *path)
{
	off_t size;

	blk->fd = open(path, (blk->read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC);
	if (blk->fd < 0)
		return error_set(-errno, "cannot open disk image %s for %s: %m", path,
				 blk->read_only ? "reading" : "writing");
	size = lseek(blk->fd, 0, SEEK_END);
	if (size < 0)
		return error_set(-errno, "cannot find the size of disk image %s: %m", path);
	blk->config.capacity = (uint64_t)size / SECTOR_SIZE;
	if (!blk->config.capacity)
		return error_set(
			-EINVAL,
			"disk image %s is empty: it must have at least one sector of %d bytes",
			path, SECTOR_SIZE);
	return lock_image(blk, path);
}

static int init(struct virtio_blk *blk, const struct virtio_blk_options *options,
		struct virtio_device_options *common)
{
	int error;

	blk->fd = -1;
	blk->read_only = options->read_only;
	blk->config.seg_max = SEGMENTS_MAX;
	blk->config.blk_size = SECTOR_SIZE;
	if (options->id)
		memcpy(blk->id, options->id, strnlen(options->id, sizeof(blk->id)));
	common->features = 1ull << VIRTIO_BLK_F_SEG_MAX | 1ull << VIRTIO_BLK_F_BLK_SIZE |
			   1ull << VIRTIO_BLK_F_FLUSH |
			   (uint64_t)options->read_only << VIRTIO_BLK_F_RO;
	common->config = &blk->config;
	common->config_size = sizeof(blk->config);
	error = virtio_device_init(&blk->device, common);
	return error ? error : open_image(blk, options->path);
}

int virtio_blk_create(struct virtio_device **result, const struct virtio_blk_options *options,
		      const struct memory *memory, struct event_loop *loop, struct irq_line line)
{
	struct virtio_device_options common = { .operations = &operations,
						.memory = memory,
						.loop = loop,
						.line = line,
						.queue_count = 1,
						.queue_size = VIRTIO_QUEUE_SIZE_MAX };
	struct virtio_blk *blk = calloc(1, sizeof(*blk));
	int error;

	*result = NULL;
	if (!blk)
		return error_set(-ENOMEM, "no memory for virtio-blk");
	error = init(blk, options, &common);
	if (error)
		virtio_device_destroy(&blk->device);
	else
		*result = &blk->device;
	return error;
}
