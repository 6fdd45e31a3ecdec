/*
 * codepatch.h
 *		Redirecting one function of the server to one of ours, and being sure beforehand that it is the
 *		function we think.  Every call returns NULL when all is well, else the reason, and then has
 *		changed nothing.
 */
#ifndef SA_CODEPATCH_H
#define SA_CODEPATCH_H

/* The address is the start of the symbol of this name; gives its size. */
extern const char *sa_codepatch_symbol(void *function, const char *name, size_t *size);

/* The function's body calls these, in this order. */
extern const char *sa_codepatch_calls(void *function, size_t size, void *const *callees, int ncallees);

/* No code of the program outside the function calls this one. */
extern const char *sa_codepatch_only_caller(void *function, size_t size, void *callee);

/* From now on every call of the function is one of the replacement.  One function at a time. */
extern const char *sa_codepatch_redirect(void *function, size_t size, void *replacement);
extern const char *sa_codepatch_restore(void);

#endif							/* SA_CODEPATCH_H */
