/* SPDX-License-Identifier: MIT */
/* Timers of libuv for transport.h. A timer belongs to its creator until transport_timer_free(); then the loop frees
 * it. */
#include <assert.h>
#include <stdlib.h>
#include <uv.h>

#include "server/base/base.h"
#include "transport.h"

struct transport_timer {
	uv_timer_t timer;
	transport_timer_fn *fire;
	void *arg;
};

static void on_uv_timer(uv_timer_t *handle)
{
	const struct transport_timer *timer = handle->data;
	timer->fire(timer->arg);
}

struct transport_timer *transport_timer_new(struct uv_loop_s *loop, transport_timer_fn *fire, void *arg)
{
	assert(loop && fire);
	struct transport_timer *timer = memory_zeroed(1, sizeof *timer);
	timer->fire = fire;
	timer->arg = arg;
	timer->timer.data = timer;
	uv_timer_init(loop, &timer->timer);
	return timer;
}

void transport_timer_start(struct transport_timer *timer, uint64_t delay_ms)
{
	assert(!uv_is_closing((uv_handle_t *)&timer->timer));
	uv_timer_start(&timer->timer, on_uv_timer, delay_ms, 0);
}

void transport_timer_stop(struct transport_timer *timer)
{
	uv_timer_stop(&timer->timer);
}

static void on_closed(uv_handle_t *handle)
{
	free(handle->data);
}

void transport_timer_free(struct transport_timer *timer)
{
	uv_close((uv_handle_t *)&timer->timer, on_closed);
}
