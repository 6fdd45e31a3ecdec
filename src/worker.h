/*
 * worker.h
 *		The worker of one stream.
 */
#ifndef SA_WORKER_H
#define SA_WORKER_H

extern void sa_worker_init(void);

extern PGDLLEXPORT void sa_worker_main(Datum arg);

#endif							/* SA_WORKER_H */
