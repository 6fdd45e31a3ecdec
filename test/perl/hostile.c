/*
 * hostile.c: a machine that turns hostile when told: preloaded into a server, whose time of day it shifts, and whose
 * files it keeps from growing as if the disk were full.  Hostile.pm tells it, through the file that HOSTILE names.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct control
{
	int64_t		seconds;		/* added to the time of day */
	char		full[120];		/* files with this in their path do not grow; "": all do */
};

static volatile struct control *control;

__attribute__((constructor)) static void
map_control(void)
{
	const char *name = getenv("HOSTILE");
	int			fd = name ? open(name, O_RDONLY) : -1;
	void	   *map = fd >= 0 ? mmap(NULL, sizeof(struct control), PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;

	if (fd >= 0)
		close(fd);
	if (map != MAP_FAILED)
		control = map;
}

#define REAL(name) ((__typeof__(&name)) dlsym(RTLD_NEXT, #name))

/* ---------- the time of day ---------- */

int
clock_gettime(clockid_t clock, struct timespec *time)
{
	static int	(*real) (clockid_t, struct timespec *);
	int			result;

	if (real == NULL)
		real = REAL(clock_gettime);
	result = real(clock, time);
	if (result == 0 && control != NULL && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
		time->tv_sec += control->seconds;
	return result;
}

int
gettimeofday(struct timeval *restrict time, void *restrict zone)
{
	struct timespec now;

	(void) zone;
	clock_gettime(CLOCK_REALTIME, &now);
	time->tv_sec = now.tv_sec;
	time->tv_usec = now.tv_nsec / 1000;
	return 0;
}

time_t
time(time_t *result)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	if (result != NULL)
		*result = now.tv_sec;
	return now.tv_sec;
}

/* ---------- the disk ---------- */

/* Would writing up to here have the file grow, where there is no room? */
static int
is_full(int fd, off_t end)
{
	char		link[64];
	char		path[4096];
	char		full[sizeof(control->full)];
	struct stat file;
	ssize_t		length;

	if (control == NULL || control->full[0] == '\0' || fstat(fd, &file) != 0 || !S_ISREG(file.st_mode) ||
		end <= file.st_size)
		return 0;
	for (size_t i = 0; i < sizeof(full); i++)
		full[i] = control->full[i];
	full[sizeof(full) - 1] = '\0';
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	length = readlink(link, path, sizeof(path) - 1);
	if (length <= 0)
		return 0;
	path[length] = '\0';
	return full[0] != '\0' && strstr(path, full) != NULL;
}

static size_t
length_of(const struct iovec *parts, int count)
{
	size_t		length = 0;

	for (int i = 0; i < count; i++)
		length += parts[i].iov_len;
	return length;
}

/* As a function that returns -1 and sets errno. */
#define REFUSE_WHEN_FULL(fd, end) \
	do { \
		if (is_full(fd, end)) \
		{ \
			errno = ENOSPC; \
			return -1; \
		} \
	} while (0)

ssize_t
pwrite(int fd, const void *data, size_t length, off_t offset)
{
	REFUSE_WHEN_FULL(fd, offset + (off_t) length);
	return REAL(pwrite) (fd, data, length, offset);
}

ssize_t
pwrite64(int fd, const void *data, size_t length, off64_t offset)
{
	REFUSE_WHEN_FULL(fd, offset + (off_t) length);
	return REAL(pwrite64) (fd, data, length, offset);
}

ssize_t
pwritev(int fd, const struct iovec *parts, int count, off_t offset)
{
	REFUSE_WHEN_FULL(fd, offset + (off_t) length_of(parts, count));
	return REAL(pwritev) (fd, parts, count, offset);
}

ssize_t
pwritev64(int fd, const struct iovec *parts, int count, off64_t offset)
{
	REFUSE_WHEN_FULL(fd, offset + (off_t) length_of(parts, count));
	return REAL(pwritev64) (fd, parts, count, offset);
}

ssize_t
write(int fd, const void *data, size_t length)
{
	/* for files whose end is where we are */
	if (control != NULL && control->full[0] != '\0')
		REFUSE_WHEN_FULL(fd, lseek(fd, 0, SEEK_CUR) + (off_t) length);
	return REAL(write) (fd, data, length);
}

int
posix_fallocate(int fd, off_t offset, off_t length)
{
	return is_full(fd, offset + length) ? ENOSPC : REAL(posix_fallocate) (fd, offset, length);
}

int
posix_fallocate64(int fd, off64_t offset, off64_t length)
{
	return is_full(fd, offset + length) ? ENOSPC : REAL(posix_fallocate64) (fd, offset, length);
}
