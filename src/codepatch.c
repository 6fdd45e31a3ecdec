/*
 * codepatch.c
 *		Redirecting one function of the server to one of ours.
 *
 * Invariant: code is never written where it runs.  A copy of its page is changed, made executable, and
 * then takes the page's place in one step (mremap), so that no page is ever writable and executable, and
 * that what is not allowed here (SELinux, PR_SET_MDWE) fails before anything has changed.  Only the
 * beginning of the function is overwritten, by a jump; the rest of it is never run again.
 *
 * No locks: done in the postmaster while it is alone; its children inherit the page.  Crash: it is memory
 * of processes only, no file is touched.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "postgres.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include "codepatch.h"

#define MAX_JUMP 24

static unsigned char *patched;	/* where the jump is; NULL: nothing is redirected */
static unsigned char original[MAX_JUMP];
static size_t jump_size;

/* ---------- per architecture: what a call looks like, what a jump ---------- */

#if defined(__linux__) && defined(__x86_64__)

#define INSTRUCTION_STEP 1

/* The target of a direct call or jump at p, or NULL. */
static const void *
call_target(const unsigned char *p)
{
	int32		distance;

	if (p[0] != 0xe8 && p[0] != 0xe9)
		return NULL;
	memcpy(&distance, p + 1, sizeof(distance));
	return p + 5 + distance;
}

/* Bytes of a landing pad (endbr64) at the entry, which must stay. */
static size_t
landing_pad(const unsigned char *p)
{
	static const unsigned char endbr64[] = {0xf3, 0x0f, 0x1e, 0xfa};

	return memcmp(p, endbr64, sizeof(endbr64)) == 0 ? sizeof(endbr64) : 0;
}

/* Does a function begin like this?  A jump or breakpoint that someone else put here does not. */
static bool
is_beginning(const unsigned char *p)
{
	return (p[0] >= 0x50 && p[0] <= 0x57) ||	/* push */
		(p[0] == 0x41 && p[1] >= 0x50 && p[1] <= 0x57) ||	/* push r8..r15 */
		(p[0] == 0x48 && (p[1] == 0x81 || p[1] == 0x83 || p[1] == 0x89 || p[1] == 0x8d)) ||	/* sub, mov, lea */
		p[0] == 0x89;			/* mov */
}

static size_t
make_jump(const unsigned char *entry, void *to, unsigned char *jump)
{
	/* notrack jmp *0(%rip): the replacement needs no landing pad */
	static const unsigned char code[] = {0x3e, 0xff, 0x25, 0, 0, 0, 0};

	memcpy(jump, code, sizeof(code));
	memcpy(jump + sizeof(code), &to, sizeof(to));
	return sizeof(code) + sizeof(to);
}

#elif defined(__linux__) && defined(__aarch64__)

#define INSTRUCTION_STEP 4
#define BTI_C 0xd503245f
#define PACIASP 0xd503233f
#define PACIBSP 0xd503237f

static uint32
instruction(const unsigned char *p)
{
	uint32		code;

	memcpy(&code, p, sizeof(code));
	return code;
}

/* bl or b */
static const void *
call_target(const unsigned char *p)
{
	uint32		code = instruction(p);

	if ((code & 0x7c000000) != 0x14000000)
		return NULL;
	return p + ((int64) (int32) (code << 6) >> 4);
}

static size_t
landing_pad(const unsigned char *p)
{
	return instruction(p) == BTI_C ? sizeof(uint32) : 0;
}

/* Not a branch, a breakpoint, or the load of an address to branch to. */
static bool
is_beginning(const unsigned char *p)
{
	uint32		code = instruction(p);

	return (code & 0x7c000000) != 0x14000000 && (code & 0xfe000000) != 0xd6000000 &&
		(code & 0xff000000) != 0xd4000000 && (code & 0xbf000000) != 0x18000000;
}

static size_t
make_jump(const unsigned char *entry, void *to, unsigned char *jump)
{
	/* ldr x16, #8; br x16 (which may land on a bti c) */
	static const uint32 code[] = {0x58000050, 0xd61f0200};
	static const uint32 pad = BTI_C;
	size_t		n = 0;

	/* these are landing pads, too, but sign a return address that our function would not expect signed */
	if (instruction(entry) == PACIASP || instruction(entry) == PACIBSP)
	{
		memcpy(jump, &pad, sizeof(pad));
		n = sizeof(pad);
	}
	memcpy(jump + n, code, sizeof(code));
	memcpy(jump + n + sizeof(code), &to, sizeof(to));
	return n + sizeof(code) + sizeof(to);
}

#else

#define INSTRUCTION_STEP 1
#define call_target(p) NULL
#define landing_pad(p) 0
#define is_beginning(p) false
#define make_jump(entry, to, jump) 0

#endif

/* ---------- being sure ---------- */

const char *
sa_codepatch_symbol(void *function, const char *name, size_t *size)
{
	Dl_info		info;
	ElfW(Sym)  *symbol = NULL;

	if (!dladdr1(function, &info, (void **) &symbol, RTLD_DL_SYMENT) || symbol == NULL)
		return psprintf("no symbol covers %s", name);
	if (info.dli_saddr != function || info.dli_sname == NULL || strcmp(info.dli_sname, name) != 0)
		return psprintf("the address of %s belongs to another symbol", name);
	*size = symbol->st_size;
	return NULL;
}

const char *
sa_codepatch_calls(void *function, size_t size, void *const *callees, int ncallees)
{
	const unsigned char *code = function;
	int			found = 0;

	for (size_t i = 0; i + 5 <= size && found < ncallees; i += INSTRUCTION_STEP)
		if (call_target(code + i) == callees[found])
			found++;
	return found == ncallees ? NULL : "the function does not call what it should";
}

typedef struct CallerSearch
{
	const unsigned char *function;
	size_t		size;
	const void *callee;
	bool		found_program;
	bool		found_caller;
} CallerSearch;

/* Looks through the executable segment that holds the function. */
static int
search_callers(struct dl_phdr_info *info, size_t info_size, void *arg)
{
	CallerSearch *search = arg;

	for (int i = 0; i < info->dlpi_phnum; i++)
	{
		const ElfW(Phdr) *header = &info->dlpi_phdr[i];
		const unsigned char *start = (const unsigned char *) info->dlpi_addr + header->p_vaddr;
		const unsigned char *end = start + header->p_memsz;

		if (header->p_type != PT_LOAD || !(header->p_flags & PF_X) ||
			search->function < start || search->function >= end)
			continue;
		search->found_program = true;
		for (const unsigned char *p = start; p + 5 <= end && !search->found_caller; p += INSTRUCTION_STEP)
		{
			if (p == search->function)
				p += search->size;
			if (p + 5 <= end && call_target(p) == search->callee)
				search->found_caller = true;
		}
	}
	return search->found_program;
}

const char *
sa_codepatch_only_caller(void *function, size_t size, void *callee)
{
	CallerSearch search = {.function = function, .size = size, .callee = callee};

	dl_iterate_phdr(search_callers, &search);
	if (!search.found_program)
		return "the program's code was not found";
	return search.found_caller ? "there is another caller of what it calls" : NULL;
}

/* ---------- the page swap ---------- */

static const char *
swap_in(unsigned char *at, const unsigned char *bytes, size_t size)
{
	uintptr_t	page = sysconf(_SC_PAGESIZE);
	unsigned char *start = (unsigned char *) ((uintptr_t) at & ~(page - 1));
	size_t		length = ((at + size) - start + page - 1) / page * page;
	unsigned char *copy = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (copy == MAP_FAILED)
		return psprintf("no memory for a page: %m");
	memcpy(copy, start, length);
	memcpy(copy + (at - start), bytes, size);
	__builtin___clear_cache((char *) copy, (char *) copy + length);
	if (mprotect(copy, length, PROT_READ | PROT_EXEC) != 0 ||
		mremap(copy, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, start) != start)
	{
		const char *reason = psprintf("the system does not allow changed code: %m");

		munmap(copy, length);
		return reason;
	}
	__builtin___clear_cache((char *) at, (char *) at + size);
	return NULL;
}

const char *
sa_codepatch_redirect(void *function, size_t size, void *replacement)
{
	unsigned char *entry = (unsigned char *) function + landing_pad(function);
	unsigned char jump[MAX_JUMP];
	const char *reason;

	if (patched)
		return "something is redirected already";
	jump_size = make_jump(entry, replacement, jump);
	if (jump_size == 0)
		return "this processor or system is not known";
	if (entry + jump_size > (unsigned char *) function + size)
		return "the function is too short";
	if (!is_beginning(entry))
		return "the function does not begin like one; somebody else may have redirected it";
	memcpy(original, entry, jump_size);
	reason = swap_in(entry, jump, jump_size);
	if (reason == NULL)
		patched = entry;
	return reason;
}

const char *
sa_codepatch_restore(void)
{
	const char *reason = patched ? swap_in(patched, original, jump_size) : NULL;

	if (reason == NULL)
		patched = NULL;
	return reason;
}
