/*
 * deadletter.h
 *		Dead letters: records and events kept aside with their reason, place and payload.
 */
#ifndef SA_DEADLETTER_H
#define SA_DEADLETTER_H

#include "batch.h"
#include "nodes/pg_list.h"

#define SA_REASON_TOMBSTONE	"tombstone"
#define SA_REASON_MALFORMED	"malformed"
#define SA_REASON_NULL_TIME	"null_time"
#define SA_REASON_FUTURE	"future"
#define SA_REASON_LATE		"late"
#define SA_REASON_FAILED	"failed"

/* Columns of stream_agg.dead_letter. */
enum
{
	Anum_letter_id = 1,
	Anum_letter_stream,
	Anum_letter_view,
	Anum_letter_reason,
	Anum_letter_topic,
	Anum_letter_partition,
	Anum_letter_position,
	Anum_letter_event_time,
	Anum_letter_arrival,
	Anum_letter_recorded_at,
	Anum_letter_message,
	Anum_letter_event,
	Anum_letter_key,
	Anum_letter_payload,
	Anum_letter_seen,			/* the key of its event, which it is the first to have (dedup.h); not in version 1.0 */
	Natts_letter = Anum_letter_seen
};

extern void sa_deadletter_init(void);

/*
 * A dead letter of the event at this ordinal, to be written by sa_deadletter_write: with the event as JSON,
 * made now with the rights of the current user (type output runs here), or with the record's bytes where
 * there is no event.  In CurrentMemoryContext.
 */
typedef struct SaDeadLetter SaDeadLetter;
extern SaDeadLetter *sa_deadletter_make(SaBatch *batch, int ordinal, Oid view, const char *reason, const char *message);
extern void sa_deadletter_set_seen(SaDeadLetter *letter);	/* the event's key, which it is the first to have */

/*
 * Write a list of them; those of the stream itself (view InvalidOid) that are there already are left out.
 * The oldest of the stream go beyond stream_agg.dead_letter_limit.
 */
extern void sa_deadletter_write(Oid stream, List *letters);

/*
 * Delete those of a view (not those of the stream itself): its records will be read again, or it is dropped, and the
 * number of a relation that is gone becomes another's one day, or in another database after a restore, whose owner
 * would see them.
 */
extern void sa_deadletter_delete(Oid stream, Oid view);

/*
 * For every event of the batch, whether it is kept aside as one that this view has refused, for whatever reason by now; NULL:
 * none is.  In the batch's context.
 */
extern bool *sa_deadletter_refused(SaBatch *batch, Oid view);

/* Another process may have deleted letters of the stream: this one must count again. */
extern void sa_deadletter_recount(Oid stream);

#endif							/* SA_DEADLETTER_H */
