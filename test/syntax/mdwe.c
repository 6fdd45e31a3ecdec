/*
 * mdwe.c
 *		Runs a command under PR_SET_MDWE, as systemd's MemoryDenyWriteExecute= does: memory that was writable
 *		never becomes executable.  Exit status 77 where the kernel does not have it.
 *
 *		mdwe COMMAND [ARG...]
 */
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

#ifndef PR_SET_MDWE
#define PR_SET_MDWE 65
#define PR_MDWE_REFUSE_EXEC_GAIN 1
#endif

int
main(int argc, char **argv)
{
	if (prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0) != 0)
		return 77;
	if (argc > 1)
		execvp(argv[1], argv + 1);
	perror("mdwe");
	return 1;
}
