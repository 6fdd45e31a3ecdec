/*
 * slot.h
 *		Shared memory: one slot per stream that wants a worker, and how backends, workers and the
 *		launcher talk through it.  Without shared_preload_libraries there is none, and every call here
 *		does nothing or says so.
 */
#ifndef SA_SLOT_H
#define SA_SLOT_H

#include "clock.h"
#include "datatype/timestamp.h"
#include "storage/condition_variable.h"
#include "storage/latch.h"

#define SA_MESSAGE_SIZE 256

typedef struct SaSlot
{
	Oid			database;		/* InvalidOid: the slot is free */
	Oid			stream;
	bool		wanted;			/* has views to keep */
	int			pid;			/* of the worker; 0: none */
	Latch	   *latch;			/* of the worker */
	int			failures;		/* in a row; for the back-off */
	SaClock		next_start;		/* not before */
	uint64		requested;		/* number of the newest run() call, of all of the cluster */
	Oid			requested_view; /* the view that it is about; InvalidOid: all */
	uint64		served;			/* of the newest one answered */
	bool		reload;			/* views or options changed */
	char		message[SA_MESSAGE_SIZE];	/* why no worker runs, or '' */
	char		trouble[SA_MESSAGE_SIZE];	/* what keeps the worker's source from reading, or '' */
	TimestampTz trouble_since;
} SaSlot;

extern int	sa_slot_max;		/* stream_agg.max_streams */

extern void sa_slot_init(void);
extern void sa_slot_require(void);	/* error unless the library was preloaded */

/* At this transaction's commit, wake the worker of the stream, if it has one. */
extern void sa_slot_wake_at_commit(Oid stream);

/* At this transaction's commit, see that the stream has a worker and that it looks at its views anew. */
extern void sa_slot_want_at_commit(Oid stream);

/* At once: the same, for the probe.  Returns false when all slots are taken. */
extern bool sa_slot_want(Oid database, Oid stream);

/* The worker's side: attach by index; the slot is let go at exit. */
extern SaSlot *sa_slot_attach(int index);
extern void sa_slot_detach(SaSlot *slot, bool unwanted, const char *message);
extern bool sa_slot_take_reload(SaSlot *slot);
extern uint64 sa_slot_pending_request(SaSlot *slot, Oid *view);
extern void sa_slot_succeeded(SaSlot *slot);
extern void sa_slot_set_trouble(SaSlot *slot, const char *trouble, TimestampTz since);	/* NULL: none */
extern void sa_slot_serve(SaSlot *slot, uint64 request);

/* run(): ask, and wait until the request is answered or the time is over (false). */
extern uint64 sa_slot_request(Oid stream, Oid view);
extern bool sa_slot_wait(Oid stream, uint64 request, SaClock until);

/* The launcher's side. */
extern void sa_slot_set_launcher(Latch *latch);
extern bool sa_slot_next_to_start(SaClock now, int *index, Oid *database, SaClock *wait_until);
extern void sa_slot_started(int index);
extern void sa_slot_not_started(int index, const char *message, SaClock retry_at);
extern void sa_slot_worker_gone(int index, SaClock now);

/* At this transaction's commit, have the launcher look which databases may have workers now. */
extern void sa_slot_look_at_commit(void);
extern bool sa_slot_take_look(void);

/* The database is no more, and with it everything that its streams wanted. */
extern void sa_slot_forget_database(Oid database);

/* A probe has looked at the whole database; whether that was the last one to say so. */
extern void sa_slot_note_probe(Oid database);
extern bool sa_slot_was_probed(Oid database);

/* A copy of the slot, for views; false when there is none. */
extern bool sa_slot_lookup(Oid stream, SaSlot *copy);

/* DROP DATABASE and friends: ask the workers of a database to leave and keep them away until unblocked. */
extern void sa_slot_block_database(Oid database, bool dropping);

#endif							/* SA_SLOT_H */
