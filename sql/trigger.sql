--
-- AFTER triggers of every kind on a result table.
--
SET timezone = 'UTC';
CREATE FOREIGN TABLE s (k int NOT NULL, v int) SERVER stream_staged;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT k, count(*) AS n, sum(v) AS total FROM s GROUP BY k HAVING sum(v) > 0;
ALTER TABLE v ADD COLUMN note text DEFAULT 'new';
CREATE TABLE audit (what text);
CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO public.audit VALUES (format('%s: %s %s %s', TG_NAME, TG_WHEN, TG_OP, TG_LEVEL)
		|| CASE WHEN TG_LEVEL = 'ROW' THEN format(', k %s, total %s -> %s', coalesce(NEW.k, OLD.k), OLD.total, NEW.total) ELSE '' END);
	RETURN NULL;
END
$$;
CREATE TRIGGER row_any AFTER INSERT OR UPDATE OR DELETE ON v FOR EACH ROW EXECUTE FUNCTION audit();
CREATE TRIGGER row_when AFTER UPDATE ON v FOR EACH ROW WHEN (NEW.total > 5) EXECUTE FUNCTION audit();
CREATE TRIGGER row_of AFTER UPDATE OF total ON v FOR EACH ROW EXECUTE FUNCTION audit();
CREATE TRIGGER row_of_note AFTER UPDATE OF note ON v FOR EACH ROW EXECUTE FUNCTION audit();
CREATE TRIGGER statement AFTER INSERT OR UPDATE OR DELETE ON v FOR EACH STATEMENT EXECUTE FUNCTION audit();
CREATE CONSTRAINT TRIGGER row_deferred AFTER INSERT OR UPDATE ON v DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION audit();
-- A new row, one changed, one gone: each statement trigger once for what happened.
INSERT INTO s VALUES (1, 1), (2, 1);
CALL stream_agg.run('s');
SELECT * FROM audit ORDER BY what COLLATE "C";
TRUNCATE audit;
INSERT INTO s VALUES (1, 10), (2, 1);
CALL stream_agg.run('s');
SELECT * FROM audit ORDER BY what COLLATE "C";
TRUNCATE audit;
INSERT INTO s VALUES (1, -100), (3, 3);
CALL stream_agg.run('s');
SELECT * FROM audit ORDER BY what COLLATE "C";
TRUNCATE audit;
-- Nothing written, nothing fired.
INSERT INTO s VALUES (4, -1);
CALL stream_agg.run('s');
SELECT * FROM audit ORDER BY what COLLATE "C";
SELECT * FROM v ORDER BY k;
-- Transition tables are not supported.
CREATE TRIGGER t AFTER INSERT ON v REFERENCING NEW TABLE AS n FOR EACH STATEMENT EXECUTE FUNCTION audit();
DROP FOREIGN TABLE s CASCADE;
DROP TABLE audit;
DROP FUNCTION audit();

-- What one view's trigger does to the transaction's constraints does not reach its neighbours.
CREATE FOREIGN TABLE s (k int NOT NULL) SERVER stream_staged;
CREATE TABLE keys (k int PRIMARY KEY);
INSERT INTO keys VALUES (1);
CREATE MATERIALIZED VIEW a WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT k, count(*) AS n FROM s GROUP BY k;
CREATE MATERIALIZED VIEW b WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT k, count(*) AS n FROM s GROUP BY k;
ALTER TABLE b ADD FOREIGN KEY (k) REFERENCES keys DEFERRABLE INITIALLY DEFERRED;
CREATE FUNCTION defer() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN SET CONSTRAINTS ALL DEFERRED; RETURN NULL; END $$;
CREATE TRIGGER t AFTER INSERT ON a FOR EACH ROW EXECUTE FUNCTION defer();
INSERT INTO s VALUES (1);
CALL stream_agg.run('s');
SELECT * FROM a;
SELECT * FROM b;
DROP FOREIGN TABLE s CASCADE;
DROP TABLE keys;
DROP FUNCTION defer();
