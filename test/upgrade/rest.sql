-- The rest of the events, until all views have read all.
SET ROLE keeper;
SET search_path = shop, public;
SET timezone = 'America/New_York';
SELECT format('INSERT INTO events SELECT * FROM log WHERE ord > %s AND ord <= %s ORDER BY ord', g, g + 400)
FROM generate_series(6400, 11600, 400) g \gexec
SELECT stream_agg.resume('paused');
CALL stream_agg.run('events');
