/*
 * stream_agg.c
 *		Loading the library: each room sets up its own.
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "utils/guc.h"

#include "ddl.h"
#include "deadletter.h"
#include "fault.h"
#include "grammar.h"
#include "launcher.h"
#include "state.h"
#include "slot.h"
#include "source_staged.h"
#include "stats.h"
#include "worker.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

void
_PG_init(void)
{
	sa_fault_init();
	sa_slot_init();
	sa_stats_init();
	sa_staged_init();
	sa_deadletter_init();
	sa_state_init();
	sa_worker_init();
	sa_launcher_init();
	sa_ddl_init();
	sa_grammar_init();
	MarkGUCPrefixReserved("stream_agg");
}
