/*
 * worker.h
 *		The worker of one stream.
 */
#ifndef SA_WORKER_H
#define SA_WORKER_H

extern void sa_worker_init(void);

/*
 * What configuration, databases and roles have set for sessions must not reach our processes: to be called before
 * they connect, and whenever the configuration has been read again.
 */
extern void sa_worker_apply_settings(void);

extern PGDLLEXPORT void sa_worker_main(Datum arg);

#endif							/* SA_WORKER_H */
