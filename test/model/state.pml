/*
 * state.pml
 *		How a worker commits batches and gets its state back, with a death at every step.
 *
 * A model in Promela of what src/worker.c, src/pipeline.c, src/commit.c and src/state.c do (DESIGN.md 4 and
 * 5), small enough for spin to go through everything that can happen.  run.sh runs it.
 *
 * The world.  A stream has one partition with a few records; a record's event time is its window, and every
 * possible log is tried.  A window closes when the watermark passes its end, and a record for a closed
 * window is late.  One worker takes all views along.  Results and states are sets of records, a bit each, so
 * that a group which has lost a record, or has one too many, shows.
 *
 * What is kept where, and when it is lost:
 *
 *	  mem		the groups in the worker's memory.  Lost whenever the worker ends.
 *	  now		the views' tables as committed.  A transaction works on a copy (tx) and commits it whole.
 *				They survive the worker's death.  Commits are asynchronous: the server's crash loses those
 *				that are not flushed, results and positions alike.
 *	  disk		the same as flushed: what a crash of the server goes back to.
 *	  kept		of these, a view's unlogged table: empty after a crash of the server.
 *	  gone		staged rows before it have been given back, for good.
 *
 * The protocol.  A batch is a transaction that holds, for every view that stands where it begins, the
 * results, the position, the base and the state that is written.  A view's part may fail: then its tables
 * and its groups in memory are as before, it stays where it is, and the others commit.
 *
 *	  state = 'heap'		every batch writes the changed groups to the state log (saved).
 *	  state = 'unlogged'	groups stay in memory.  The view has a base, a position up to its own: a boundary of
 *				batches before which none of the windows open now was born, but for those that the log
 *				holds as of the base.  It moves with the position, in one transaction: to where the
 *				oldest open window was born, or, whenever the whole state is written to the log, up to
 *				the position.  Staged rows are given back before the least base of all views.
 *
 * (So heap state is the case where the base always is the position.)
 *
 * When memory is short, the groups of a window go to the unlogged table until they are needed.  When the
 * worker is told to stop, all groups go there, with a mark: which position and floor they belong to.  A
 * worker that starts takes them if the mark says where the view stands.  Otherwise it empties the unlogged
 * table, loads the log, and reads again from the base to the position, writing no results: with the running
 * maximum as of the base, and the floor as it is now, for what the floor has closed meanwhile is closed now.
 * (Idleness or an administrator may move the floor without any record: state changes, the position does
 * not.  That is why the mark tells the floor too.)
 *
 * What is claimed, and asserted below: after every commit and whenever all has been read again, the results
 * are the batch answer over exactly the records before the position, and the state is what a worker that
 * never ended would have; no record is folded twice; no row is inserted twice; no record that has been given
 * back is read; and every run ends, with everything read.
 *
 * A step (d_step) here is a transaction, or a batch of reading again: a worker that dies within one leaves
 * what it leaves when it dies before.  One thing of each other kind happens per run: a part fails, the worker
 * is stopped, the floor moves, a window goes out of memory; at any time.
 *
 * With `broken` the protocol is broken in one place, and spin has to find what goes wrong.
 */
#define MARK_UNCHECKED 1		/* the unlogged table is taken whatever its mark says */
#define MARK_WITHOUT_FLOOR 2	/* the mark tells the position only */
#define SPILL_TRUSTED 3			/* the unlogged table is not emptied before reading again */
#define BASE_TOO_EARLY 4		/* the base moves to the position though windows are open */
#define BASE_FIRST 5			/* the base moves in a transaction before the position's */
#define BASE_WITHOUT_MAXIMUM 6	/* the running maximum as of the base is not known */
#define REBUILD_WRITES 7		/* reading again writes results */
#define RELEASE_BY_POSITION 8	/* staged rows are given back before the position */
#define RELEASE_UNFLUSHED 9		/* staged rows go while a crash may still take back that they may */
#define POSITION_LATER 10		/* the position follows in a transaction after the results' */
#define FAILURE_STAYS 11		/* what a failed part has folded stays in memory */

#define MOST_RECORDS 4			/* at most 8: sets of them are bytes */
#define MOST_VIEWS 2
#define NW 3					/* windows; a record's event time is 0 .. 2 */
#define DELAY 1					/* the watermark's, so that two windows may be open */
#define NONE 255

#define bit(n) (1 << (n))
#define greater(a, b) ((a) > (b) -> (a) : (b))
#define lesser(a, b) ((a) < (b) -> (a) : (b))
#define is_append(v) (append && (v) == 0)
#define least(field) lesser(now[0].field, now[nviews - 1].field)

/* What is tried, as the environment says. */
c_decl { \#include <stdlib.h> }

hidden byte broken;				/* where; 0: nowhere */
hidden byte nrecords;
hidden byte nviews;				/* the first has unlogged state, the second heap state */
hidden byte append;				/* the first view's output_mode; the second updates */
hidden byte most_deaths;		/* of worker or server */

/* What transactions change of a view. */
typedef Tables
{
	byte position;
	byte base;
	byte floor;					/* windows before this one are closed whatever the records say, ... */
	byte floor_at;				/* ... from this position on (for the check alone) */
	byte results;
	byte saved;					/* the state log */
	byte kept;					/* the unlogged table, ... */
	byte mark;					/* ... the position that it belongs to, ... */
	byte mark_floor				/* ... and the floor */
}

/* What the worker holds of a view. */
typedef Memory
{
	byte at;					/* up to where records are in the groups */
	byte state;					/* the groups in memory */
	byte out;					/* windows whose groups are in the unlogged table */
	byte born[NW]				/* where the batch began in which the window was born; NONE: it is not open */
}

/* What may become of a view's part of a batch. */
#define PLAIN 0
#define LOGGED 1				/* all groups are written to the log */
#define FAILED 2

byte time_of[MOST_RECORDS];		/* the log of the stream */
byte gone;						/* records before this one are given back */
Tables now[MOST_VIEWS], disk[MOST_VIEWS], tx[MOST_VIEWS];
Memory mem[MOST_VIEWS];
byte deaths;
bool flushed;
bool pending;					/* half of a broken transaction is committed */
bool failed, stopped, moved, spilled;	/* what has happened */

/*
 * Scratch: means nothing between steps.  (A step must not begin or end with a loop or a branch, says spin; hence some
 * assignments below.)
 */
hidden byte i, k, w, n, v, records, maximum, lowest, accepted, oldest, end, fate;
hidden Memory before;			/* the batch, for a part that fails */

/* ---------- time ---------- */

/* Is the window closed by the running maximum, or by that floor? */
#define is_closed(window, floor) ((window) + DELAY < maximum || (window) < (floor))

/* Where the view's floor was at this position. */
#define floor_at(v, place) (now[v].floor_at <= (place) -> now[v].floor : 0)

/* The running maximum over these records. */
inline find_maximum(first, past)
{
	maximum = 0;
	for (k : 0 .. nrecords - 1) {
		maximum = ((first) <= k && k < (past) -> greater(maximum, time_of[k]) : maximum)
	}
}

/* The records of all windows w for which the condition holds. */
inline find_records(condition)
{
	records = 0;
	for (k : 0 .. nrecords - 1) {
		w = time_of[k];
		records = ((condition) -> records | bit(k) : records)
	}
}

/* ---------- what is claimed ---------- */

/* The batch answer over the records before a position. */
inline find_accepted(view, past)
{
	accepted = 0;
	maximum = 0;
	i = 0;
	do
	:: i < (past) ->
		lowest = floor_at(view, i);
		accepted = (is_closed(time_of[i], lowest) -> accepted : accepted | bit(i));
		maximum = greater(maximum, time_of[i]);
		i++
	:: else -> break
	od;
	lowest = floor_at(view, past);
	find_records(is_closed(w, lowest))
}

inline check(view)
{
	find_accepted(view, now[view].position);
	assert(now[view].base <= now[view].position);
	assert(now[view].results == (is_append(view) -> accepted & records : accepted));
	if
	:: mem[view].at == now[view].position ->
		accepted = accepted & ~records;
		find_records(mem[view].out & bit(w));
		assert((mem[view].state & records) == 0);
		assert((mem[view].state | (now[view].kept & records)) == accepted)
	:: else
	fi
}

/* ---------- transactions ---------- */

inline copy_tables(to, from)
{
	to.position = from.position;
	to.base = from.base;
	to.floor = from.floor;
	to.floor_at = from.floor_at;
	to.results = from.results;
	to.saved = from.saved;
	to.kept = from.kept;
	to.mark = from.mark;
	to.mark_floor = from.mark_floor
}

inline clear_tables(to)
{
	to.position = 0;
	to.base = 0;
	to.floor = 0;
	to.floor_at = 0;
	to.results = 0;
	to.saved = 0;
	to.kept = 0;
	to.mark = NONE;
	to.mark_floor = 0
}

/* Records before this one are needed no more. */
#define needed (broken == RELEASE_BY_POSITION -> least(position) : least(base))

inline begin()
{
	for (n : 0 .. nviews - 1) {
		copy_tables(tx[n], now[n])
	}
}

/*
 * All that is committed gets to the disk, where an unlogged table counts for nothing.  Staged rows go as soon as
 * they may: once it is on disk that nobody needs them.
 */
inline flush()
{
	for (n : 0 .. nviews - 1) {
		copy_tables(disk[n], now[n]);
		disk[n].kept = 0;
		disk[n].mark = NONE;
		disk[n].mark_floor = 0
	}
	gone = needed;
	flushed = true
}

/* The one before is on disk by now: to lose several is no different from a crash that came earlier. */
inline commit()
{
	flush();
	for (v : 0 .. nviews - 1) {
		copy_tables(now[v], tx[v]);
		clear_tables(tx[v]);
		check(v)
	}
	gone = (broken == RELEASE_UNFLUSHED -> needed : gone);
	flushed = false
}

/* A batch is one transaction, unless that is what is broken. */
inline commit_batch()
{
	if
	:: broken == BASE_FIRST ->
		for (n : 0 .. nviews - 1) {
			now[n].base = tx[n].base
		}
		pending = true;
		flushed = false
	:: broken == POSITION_LATER ->
		for (n : 0 .. nviews - 1) {
			end = now[n].position;
			copy_tables(now[n], tx[n]);
			now[n].position = end
		}
		pending = true;
		flushed = false
	:: else -> commit()
	fi;
	fate = PLAIN
}

/* ---------- groups ---------- */

/* The window's groups come back from the unlogged table; what that holds of them is stale from now on. */
inline bring_in(v, window)
{
	find_records(w == (window) && (mem[v].out & bit(w)));
	mem[v].state = mem[v].state | (now[v].kept & records);
	mem[v].out = mem[v].out & ~bit(window)
}

/* Fold the records up to there, judged by the running maximum before each, and the floor. */
inline fold(v, past)
{
	i = mem[v].at;
	do
	:: i < (past) ->
		assert(i >= gone);
		if
		:: !is_closed(time_of[i], now[v].floor) ->
			bring_in(v, time_of[i]);
			assert((mem[v].state & bit(i)) == 0);
			mem[v].state = mem[v].state | bit(i);
			mem[v].born[time_of[i]] = lesser(mem[v].born[time_of[i]], mem[v].at)
		:: else
		fi;
		maximum = greater(maximum, time_of[i]);
		i++
	:: else -> break
	od;
	mem[v].at = past
}

/* Windows close: their groups are written, in append mode, and forgotten. */
inline close(v, lowest_open, writes)
{
	lowest = lowest_open;
	n = 0;
	do
	:: n < NW ->
		if
		:: is_closed(n, lowest) && mem[v].born[n] != NONE ->
			bring_in(v, n);
			find_records(w == n);
			if
			:: writes ->
				assert((tx[v].results & records) == 0);
				tx[v].results = tx[v].results | (mem[v].state & records)
			:: else
			fi;
			mem[v].state = mem[v].state & ~records;
			mem[v].born[n] = NONE;
			tx[v].saved = tx[v].saved & ~records
		:: else
		fi;
		n++
	:: else -> break
	od
}

/* In update mode: the rows of groups that are in memory. */
inline write_changed(v)
{
	find_records(mem[v].born[w] != NONE && !(mem[v].out & bit(w)));
	tx[v].results = (is_append(v) -> tx[v].results : (tx[v].results & ~records) | mem[v].state)
}

/* All groups go to the log; so the base moves to the position. */
inline write_log(v)
{
	find_records(mem[v].out & bit(w));
	tx[v].saved = mem[v].state | (now[v].kept & records);
	tx[v].base = tx[v].position;
	for (n : 0 .. NW - 1) {
		mem[v].born[n] = (mem[v].born[n] == NONE -> NONE : tx[v].position)
	}
}

/* The base moves to where the oldest open window was born.  What the log holds was of windows closed since. */
inline move_base(v)
{
	oldest = tx[v].position;
	for (n : 0 .. NW - 1) {
		oldest = (broken != BASE_TOO_EARLY && mem[v].born[n] < oldest -> mem[v].born[n] : oldest)
	}
	tx[v].saved = (oldest > tx[v].base -> 0 : tx[v].saved);
	tx[v].base = oldest
}

#define is_in_memory(v, window) (mem[v].born[window] != NONE && !(mem[v].out & bit(window)))

/* The groups of a window go to the unlogged table, in a transaction of their own. */
inline spill(view, window)
{
	find_records(w == window);
	now[view].kept = (now[view].kept & ~records) | (mem[view].state & records);
	mem[view].state = mem[view].state & ~records;
	mem[view].out = mem[view].out | bit(window);
	check(view);
	records = 0
}

/* ---------- a batch ---------- */

inline copy_memory(to, from)
{
	to.state = from.state;
	to.out = from.out;
	for (n : 0 .. NW - 1) {
		to.born[n] = from.born[n]
	}
}

/* The view's part of a batch; fate says what becomes of it. */
inline take_part(v, past)
{
	copy_memory(before, mem[v]);
	find_maximum(0, now[v].position);
	fold(v, past);
	tx[v].position = past;
	write_changed(v);
	close(v, tx[v].floor, is_append(v));
	if
	:: fate == LOGGED || v > 0 -> write_log(v)
	:: else -> move_base(v)
	fi;
	if
	:: fate == FAILED ->
		failed = true;
		mem[v].at = now[v].position;
		copy_tables(tx[v], now[v]);
		if
		:: broken != FAILURE_STAYS -> copy_memory(mem[v], before)
		:: else
		fi
	:: else
	fi
}

#define is_ready(v) (!pending && (v) < nviews && mem[v].at == now[v].position)
#define stands_at(v, place) (mem[v].at == (place) && now[v].position == (place))

/* A batch of so many records for the views that stand where this one does. */
inline process_batch(leader, count, fate_0, fate_1)
{
	begin();
	end = now[leader].position + count;
	v = 0;
	do
	:: v < nviews ->
		fate = (v == 0 -> fate_0 : fate_1);
		if
		:: stands_at(v, end - count) -> take_part(v, end)
		:: else
		fi;
		v++
	:: else -> break
	od;
	commit_batch()
}

/* A batch without records: the first view's floor moves. */
inline move_floor(to)
{
	begin();
	tx[0].floor = to;
	tx[0].floor_at = now[0].position;
	fate = PLAIN;
	take_part(0, now[0].position);
	commit()
}

/* ---------- start and stop ---------- */

#define is_marked(v) (now[v].mark != NONE && (broken == MARK_UNCHECKED || now[v].mark == now[v].position && \
	(broken == MARK_WITHOUT_FLOOR || now[v].mark_floor == now[v].floor)))

/* Take the marked groups, or empty the unlogged table and begin to read again. */
inline load(view)
{
	if
	:: is_marked(view) -> mem[view].at = now[view].position
	:: else ->
		now[view].kept = (broken == SPILL_TRUSTED -> now[view].kept : 0);
		now[view].mark = NONE;
		now[view].mark_floor = 0;
		mem[view].at = now[view].base;
		mem[view].state = now[view].saved
	fi;
	for (i : 0 .. nrecords - 1) {
		mem[view].out = (now[view].kept & bit(i) -> mem[view].out | bit(time_of[i]) : mem[view].out);
		mem[view].born[time_of[i]] = ((now[view].kept | mem[view].state) & bit(i) -> now[view].base : mem[view].born[time_of[i]])
	}
	check(view)
}

/* A worker starts. */
inline start()
{
	pending = false;
	for (n : 0 .. nviews - 1) {
		mem[n].state = 0;
		mem[n].out = 0;
		for (k : 0 .. NW - 1) {
			mem[n].born[k] = NONE
		}
		clear_tables(tx[n]);
		load(n)
	}
	n = 0
}

/* The server starts, or comes back after a crash. */
inline start_server()
{
	for (n : 0 .. nviews - 1) {
		copy_tables(now[n], disk[n])
	}
	flushed = true;
	start()
}

/* All groups go to the unlogged table, with the mark. */
inline stop()
{
	begin();
	find_records(mem[0].out & bit(w));
	tx[0].kept = mem[0].state | (now[0].kept & records);
	tx[0].mark = now[0].position;
	tx[0].mark_floor = now[0].floor;
	commit();
	start()
}

/* Read so many records again. */
inline read_again(view, count)
{
	end = mem[view].at + count;
	oldest = (broken == BASE_WITHOUT_MAXIMUM -> now[view].base : 0);
	find_maximum(oldest, mem[view].at);
	fold(view, end);
	copy_tables(tx[view], now[view]);
	close(view, now[view].floor, broken == REBUILD_WRITES && is_append(view));
	if
	:: broken == REBUILD_WRITES -> write_changed(view); now[view].results = tx[view].results
	:: else
	fi;
	clear_tables(tx[view]);
	check(view);
	records = 0
}

/* ---------- the worker ---------- */

#define batch(leader, count, fate_0, fate_1) \
	:: d_step { \
		is_ready(leader) && now[leader].position + count <= nrecords && !(failed && FAILED == fate_0 + fate_1) -> \
		process_batch(leader, count, fate_0, fate_1) \
	}

#define batches(leader, count) \
	batch(leader, count, PLAIN, PLAIN) \
	batch(leader, count, LOGGED, PLAIN) \
	batch(leader, count, FAILED, PLAIN) \
	batch(leader, count, PLAIN, FAILED)

#define again(view, count) \
	:: d_step { \
		!pending && view < nviews && mem[view].at + count <= now[view].position -> \
		read_again(view, count) \
	}

#define floors(to) \
	:: d_step { !moved && is_ready(0) && now[0].floor < to -> moved = true; move_floor(to) }

#define spills(window) \
	:: d_step { !pending && !spilled && is_in_memory(0, window) -> spilled = true; spill(0, window) }

active proctype worker()
{
	byte r;

	c_code {
		broken = atoi(getenv("BROKEN"));
		nrecords = atoi(getenv("RECORDS"));
		nviews = atoi(getenv("VIEWS"));
		append = atoi(getenv("APPEND"));
		most_deaths = atoi(getenv("DEATHS"));
	};
	do
	:: r < nrecords -> time_of[r] = 0; r++
	:: r < nrecords -> time_of[r] = 1; r++
	:: r < nrecords -> time_of[r] = 2; r++
	:: else -> break
	od;
	skip;
	d_step { r = 0; clear_tables(now[0]); clear_tables(now[nviews - 1]); flush(); start() }
	do
	batches(0, 1)
	batches(0, 2)
	batches(1, 1)
	batches(1, 2)
	again(0, 1)
	again(0, 2)
	floors(1)
	floors(2)
	floors(3)
	spills(0)
	spills(1)
	spills(2)
	:: d_step { pending -> pending = false; commit() }
	:: d_step { !flushed -> flush() }
	:: d_step { !stopped && is_ready(0) -> stopped = true; stop() }
	:: d_step { deaths < most_deaths -> deaths++; start() }
	:: d_step { deaths < most_deaths -> deaths++; start_server() }
	:: least(position) == nrecords && is_ready(0) && is_ready(nviews - 1) -> break
	od
}
