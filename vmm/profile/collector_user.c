/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/profile/collector_user.h"

static const struct guest_kernel *newest(const struct collector_kernel *kernel)
{
	return kernel->found_count ? kernel->found[kernel->found_count - 1].kernel : NULL;
}

const struct user_images *collector_user_images(const struct collector_kernel *kernel)
{
	return newest(kernel) ? newest(kernel)->images : NULL;
}

void collector_user_settle(const struct collector_kernel *kernel)
{
	if (collector_user_images(kernel))
		user_images_settle(newest(kernel)->images, newest(kernel), kernel->options->view);
}
