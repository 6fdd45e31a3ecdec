/*
 * launcher.h
 *		The launcher: finds databases that have streams with views, and keeps their workers running.
 */
#ifndef SA_LAUNCHER_H
#define SA_LAUNCHER_H

extern void sa_launcher_init(void);

extern PGDLLEXPORT void sa_launcher_main(Datum arg);
extern PGDLLEXPORT void sa_probe_main(Datum arg);

#endif							/* SA_LAUNCHER_H */
