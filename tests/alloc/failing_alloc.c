/* An allocator that fails once, when it is told to: preloaded (LD_PRELOAD) into redlockd by tests/alloc.
 *
 * It stands before malloc() and its kin for the whole process, so it sees the allocations of all libraries too, and of
 * every thread. The test tells it what to do through a file that both map (ALLOC_CONTROL, struct control): `fail_at` =
 * k lets the k-th allocation from now on fail with ENOMEM, that one alone; 0 lets all of them pass. It answers with how
 * many it has counted, whether one failed, from where that one was asked for (`frames`), and how many blocks live.
 *
 * `mutation` makes the failing allocation do some harm besides, as a program with a bug would: the sweep must notice
 * (test_planted.py).
 *
 * The real allocator is the next one in the order of the libraries: that of libc, or AddressSanitizer's. What is
 * `excused` is let pass: the few allocations whose failure ends the process from inside a library. */
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <hiredis/async.h>
#include <hiredis/hiredis.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <uv.h>

enum { FRAMES_MAX = 24, EARLY_BYTES = 16384 };

enum mutation { MUTATION_NONE, MUTATION_CRASH, MUTATION_LEAK, MUTATION_DESCRIPTOR, MUTATION_HANG };

/* world.py has the same. */
struct control {
	_Atomic uint64_t fail_at;
	_Atomic uint64_t counted;
	_Atomic uint64_t failed;
	_Atomic int64_t living;
	_Atomic uint64_t mutation;
	_Atomic uint64_t frame_count;
	_Atomic uint64_t excused;
	uint64_t frames[FRAMES_MAX];
};

static struct control *control;
static __thread volatile bool inside;  /* our own calls are not counted */
static __thread volatile bool excused; /* volatile: the compiler thinks that it knows what malloc() looks at */
static __thread volatile bool subscribes;

static void *(*real_malloc)(size_t);
static void *(*real_calloc)(size_t, size_t);
static void *(*real_realloc)(void *, size_t);
static void (*real_free)(void *);
static int (*real_posix_memalign)(void **, size_t, size_t);
static void *(*real_aligned_alloc)(size_t, size_t);

/* What the loader asks for before it can tell us where the real ones are. Never given back. */
static char early[EARLY_BYTES] __attribute__((aligned(16)));
static size_t early_used;

static void *early_new(size_t size)
{
	size_t at = early_used;

	size = (size + 15) & ~(size_t)15;
	if (size > sizeof(early) - at)
		abort();
	early_used += size;
	return early + at;
}

static bool is_early(const void *block)
{
	return (const char *)block >= early && (const char *)block < early + sizeof(early);
}

static void *find(const char *name)
{
	void *found = dlsym(RTLD_NEXT, name);

	if (found == NULL)
		abort();
	return found;
}

static bool find_real(void)
{
	static bool finding;

	if (real_free != NULL)
		return true;
	if (finding)
		return false;
	finding = true;
	void *(*found_malloc)(size_t) = (void *(*)(size_t))find("malloc");
	real_calloc = (void *(*)(size_t, size_t))find("calloc");
	real_realloc = (void *(*)(void *, size_t))find("realloc");
	real_posix_memalign = (int (*)(void **, size_t, size_t))find("posix_memalign");
	real_aligned_alloc = (void *(*)(size_t, size_t))find("aligned_alloc");
	real_malloc = found_malloc;
	real_free = (void (*)(void *))find("free");
	return true;
}

void __lsan_disable(void) __attribute__((weak));
void __lsan_enable(void) __attribute__((weak));

__attribute__((constructor)) static void begin(void)
{
	const char *path = getenv("ALLOC_CONTROL");
	void *frames[FRAMES_MAX];

	if (path == NULL)
		return;
	inside = true;
	if (__lsan_disable)
		__lsan_disable();
	(void)backtrace(frames, FRAMES_MAX); /* loads what it needs, and keeps it */
	if (__lsan_enable)
		__lsan_enable();
	int fd = open(path, O_RDWR | O_CLOEXEC);
	void *map = fd >= 0 ? mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
			    : MAP_FAILED;
	if (map == MAP_FAILED)
		abort();
	close(fd);
	control = map;
	inside = false;
}

/* ---- what the libraries do not survive, and we cannot mend: README.md ---- */

#define NEXT(name) ((__typeof__(&name))find(#name))

#if HIREDIS_MAJOR < 1
/* These two abort where memory is short. A connection begins and ends with them: the path of its socket, its two tables
 * of channels, the walk through these at its end. */
char *hi_strdup(const char *text)
{
	bool before = excused;

	excused = true;
	char *copy = strdup(text);
	excused = before;
	return copy;
}

void *hi_malloc(size_t size)
{
	bool before = excused;

	excused = true;
	void *block = malloc(size);
	excused = before;
	return block;
}

/* With text: the name of a channel, which it uses without a look. */
char *sdsnewlen(const void *text, size_t len)
{
	bool before = excused;

	excused = before || (text != NULL && len > 0);
	char *made = ((char *(*)(const void *, size_t))find("sdsnewlen"))(text, len);
	excused = before;
	return made;
}

static bool is_channels_table(size_t size)
{
	return subscribes && size == 4 * sizeof(void *);
}

/* redlockd uses it for AUTH and SUBSCRIBE on the connection that listens, and for nothing else. */
int redisAsyncCommand(redisAsyncContext *context, redisCallbackFn *fn, void *arg, const char *format, ...)
{
	va_list arguments;

	subscribes = strncmp(format, "SUBSCRIBE", 9) == 0;
	va_start(arguments, format);
	int result = NEXT(redisvAsyncCommand)(context, fn, arg, format, arguments);
	va_end(arguments);
	subscribes = false;
	return result;
}
#else
static bool is_channels_table(size_t size)
{
	(void)size;
	return false;
}
#endif

/* Aborts where its list of descriptors cannot grow. */
int uv_poll_start(uv_poll_t *poll, int events, uv_poll_cb callback)
{
	excused = true;
	int result = NEXT(uv_poll_start)(poll, events, callback);
	excused = false;
	return result;
}

/* ---- failing ---- */

static void harm(void)
{
	switch ((enum mutation)control->mutation) {
	case MUTATION_CRASH: abort();
	case MUTATION_LEAK:
		(void)!real_malloc(100);
		control->living++;
		break;
	case MUTATION_DESCRIPTOR: (void)!dup(2); break;
	case MUTATION_HANG:
		for (;;)
			pause();
	case MUTATION_NONE: break;
	}
}

/* Counts an allocation; true if it must fail. */
static bool must_fail(size_t size)
{
	if (control == NULL || inside || control->fail_at == 0)
		return false;
	if (excused || is_channels_table(size)) {
		control->excused++;
		return false;
	}
	if (++control->counted != control->fail_at)
		return false;
	void *frames[FRAMES_MAX];
	inside = true;
	int count = backtrace(frames, FRAMES_MAX);
	for (int i = 0; i < count; i++)
		control->frames[i] = (uint64_t)(uintptr_t)frames[i];
	control->frame_count = (uint64_t)count;
	control->failed = 1;
	harm();
	inside = false;
	errno = ENOMEM;
	return true;
}

static void *count_living(void *block)
{
	if (control != NULL && block != NULL)
		control->living++;
	return block;
}

void *malloc(size_t size)
{
	if (!find_real())
		return early_new(size);
	return must_fail(size) ? NULL : count_living(real_malloc(size));
}

void *calloc(size_t count, size_t size)
{
	if (!find_real()) {
		if (size != 0 && count > SIZE_MAX / size)
			return NULL;
		return early_new(count * size);
	}
	return must_fail(count * size) ? NULL : count_living(real_calloc(count, size));
}

void *realloc(void *block, size_t size)
{
	if (!find_real() || is_early(block)) {
		void *moved = malloc(size);
		if (moved != NULL && block != NULL) {
			size_t room = (size_t)(early + sizeof(early) - (char *)block);
			memcpy(moved, block, size < room ? size : room);
		}
		return moved;
	}
	if (must_fail(size))
		return NULL;
	void *moved = real_realloc(block, size);
	if (block == NULL)
		count_living(moved);
	return moved;
}

void free(void *block)
{
	if (block == NULL || is_early(block) || !find_real())
		return;
	if (control != NULL)
		control->living--;
	int error = errno;
	real_free(block);
	errno = error;
}

int posix_memalign(void **ret_block, size_t alignment, size_t size)
{
	if (!find_real() || must_fail(size))
		return ENOMEM;
	int error = real_posix_memalign(ret_block, alignment, size);
	if (error == 0)
		count_living(*ret_block);
	return error;
}

void *aligned_alloc(size_t alignment, size_t size)
{
	if (!find_real() || must_fail(size))
		return NULL;
	return count_living(real_aligned_alloc(alignment, size));
}

/* AddressSanitizer has its own, which do not come by here. */
char *strndup(const char *text, size_t max)
{
	size_t len = strnlen(text, max);
	char *copy = malloc(len + 1);

	if (copy == NULL)
		return NULL;
	memcpy(copy, text, len);
	copy[len] = '\0';
	return copy;
}

char *strdup(const char *text)
{
	return strndup(text, SIZE_MAX / 2);
}
