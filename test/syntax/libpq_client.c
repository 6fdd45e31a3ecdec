/*
 * libpq_client.c
 *		Our statements over the extended protocol: prints what the server answers, a line for each step.
 *
 *		libpq_client CONNECTION_STRING
 */
#include <stdio.h>
#include <string.h>

#include "libpq-fe.h"

static void
show(const char *step, PGresult *result)
{
	const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
	const char *position = PQresultErrorField(result, PG_DIAG_STATEMENT_POSITION);

	printf("%s: %s", step, PQresStatus(PQresultStatus(result)));
	if (*PQcmdStatus(result))
		printf(" %s", PQcmdStatus(result));
	if (message)
		printf(" %s", message);
	if (position)
		printf(" at %s", position);
	printf("\n");
	PQclear(result);
}

static void
run(PGconn *conn, const char *step, const char *text)
{
	show(step, PQexecParams(conn, text, 0, NULL, NULL, NULL, NULL, 0));
}

static void
run_pipeline(PGconn *conn)
{
	PGresult   *result;
	ExecStatusType status = PGRES_EMPTY_QUERY;

	PQenterPipelineMode(conn);
	PQsendQueryParams(conn, "CREATE STREAM xs (b int)", 0, NULL, NULL, NULL, NULL, 0);
	PQsendQueryParams(conn, "COMMENT ON STREAM xs IS 'x'", 0, NULL, NULL, NULL, NULL, 0);
	PQsendQueryParams(conn, "DROP STREAM xs", 0, NULL, NULL, NULL, NULL, 0);
	PQpipelineSync(conn);
	while (status != PGRES_PIPELINE_SYNC && PQstatus(conn) == CONNECTION_OK)
	{
		result = PQgetResult(conn);
		if (result == NULL)
			continue;
		status = PQresultStatus(result);
		show("pipeline", result);
	}
	PQexitPipelineMode(conn);
}

int
main(int argc, char **argv)
{
	PGconn	   *conn = PQconnectdb(argc > 1 ? argv[1] : "");
	const char *one = "1";

	if (PQstatus(conn) != CONNECTION_OK)
	{
		fprintf(stderr, "%s", PQerrorMessage(conn));
		return 1;
	}
	run(conn, "create stream", "CREATE STREAM xs (a int, at timestamptz) WITH (event_time = 'at', watermark = '1 s')");
	show("prepare view", PQprepare(conn, "create_view",
								   "CREATE CONTINUOUS VIEW xv WITH (trigger = manual) AS SELECT a, count(*) FROM xs GROUP BY a",
								   0, NULL));
	show("describe view", PQdescribePrepared(conn, "create_view"));
	show("create view", PQexecPrepared(conn, "create_view", 0, NULL, NULL, NULL, 0));
	run(conn, "alter stream", "ALTER STREAM xs SET (watermark = '2 s')");
	run(conn, "explain", "EXPLAIN CONTINUOUS VIEW xv");
	show("prepare drop", PQprepare(conn, "drop_view", "DROP CONTINUOUS VIEW xv", 0, NULL));
	show("drop view", PQexecPrepared(conn, "drop_view", 0, NULL, NULL, NULL, 0));
	run(conn, "another column", "ALTER STREAM xs ADD COLUMN b int");
	show("create view again", PQexecPrepared(conn, "create_view", 0, NULL, NULL, NULL, 0));
	show("drop view again", PQexecPrepared(conn, "drop_view", 0, NULL, NULL, NULL, 0));
	run(conn, "two in one", "DROP STREAM xs; SELECT 1");
	show("parameter", PQexecParams(conn, "CREATE CONTINUOUS VIEW xv AS SELECT a FROM xs WHERE a = $1", 1, NULL, &one, NULL, NULL, 0));
	run(conn, "syntax error", "CREATE STREAM x2 (a int,)");
	run(conn, "refused", "/* \xc3\xa9 */ CREATE TEMP STREAM x2 (a int)");
	run(conn, "drop stream", "DROP STREAM xs");
	run_pipeline(conn);
	PQfinish(conn);
	return 0;
}
