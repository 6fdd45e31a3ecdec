/*
 * fault.h
 *		Fault points: places where tests have a process fail or wait.  Nothing of it is in normal builds, only in
 *		those with `make FAULTS=1`.
 *
 * Passed by the worker for a stream (in brackets: its relation is that of the point):
 *		start_worker	connected to its database, nothing read yet (stream)
 *		fetch			a batch is read, its order of staged rows not committed yet (stream)
 *		before_commit	all of a batch is written (stream)
 *		after_commit	and committed; memory does not know yet (stream)
 *		release			staged rows are given back, not committed yet (stream)
 *		start_view		first contact: where the view begins is resolved, not stored yet (view)
 * for a view's part of a batch:
 *		query			a row comes out of the query (view)
 *		fold			a row is about to be folded (view)
 *		close_window	a window is about to be emitted and forgotten (view)
 *		result_write	a row is changed in the result table, or new there and not in its indexes yet (view)
 *		state_write		results are written, the state log is not (view)
 *		rebuild			a batch is read again to rebuild state (view)
 *		compact			old chunks of a log are about to be written again (view)
 *		spill			groups are about to go to the spill table (view)
 *		save			all are, and the mark, as the worker stops; not committed yet (view)
 *		restore			state is back from there, not committed yet (view)
 * and by whoever drops a view:
 *		drop			what belongs to it is gone from the catalogs, not committed yet (view)
 */
#ifndef SA_FAULT_H
#define SA_FAULT_H

#ifdef SA_FAULTS
#define SA_FAULT(point, relation) sa_fault_pass(point, relation)

extern void sa_fault_init(void);
extern void sa_fault_pass(const char *point, Oid relation);
#else
#define SA_FAULT(point, relation) ((void) 0)
#define sa_fault_init() ((void) 0)
#endif

#endif							/* SA_FAULT_H */
