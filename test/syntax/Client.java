// Our statements through JDBC, as plain and as prepared statements: prints what the driver hears, a line for each.
//
//	Client URL
import java.sql.*;
import org.postgresql.util.PSQLException;

public class Client {
	static void show(String step, PreparedStatement statement) throws SQLException {
		String outcome;
		try (statement) {
			boolean rows = statement.execute();
			int n = 0;
			for (ResultSet set = rows ? statement.getResultSet() : null; set != null && set.next();)
				n++;
			outcome = rows ? n + " rows" : "count " + statement.getUpdateCount();
		} catch (PSQLException e) {
			var message = e.getServerErrorMessage();
			outcome = message == null ? e.getMessage() : message.getMessage() + " at " + message.getPosition();
		}
		System.out.println(step + ": " + outcome);
	}

	public static void main(String[] args) throws Exception {
		try (Connection connection = DriverManager.getConnection(args[0])) {
			show("create stream", connection.prepareStatement(
					"CREATE STREAM js (a int, at timestamptz) WITH (event_time = 'at', watermark = '1 s')"));
			show("create view", connection.prepareStatement(
					"CREATE CONTINUOUS VIEW jv WITH (trigger = 'manual') AS SELECT a, count(*) FROM js GROUP BY a"));
			show("insert", connection.prepareStatement("INSERT INTO js VALUES (1, '2024-01-01'), (2, '2024-01-01')"));
			show("alter", connection.prepareStatement("ALTER STREAM js SET (watermark = '2 s')"));
			show("explain", connection.prepareStatement("EXPLAIN CONTINUOUS VIEW jv"));
			show("run", connection.prepareStatement("CALL stream_agg.run('js')"));
			PreparedStatement select = connection.prepareStatement("SELECT count AS stream FROM jv WHERE a = ? OR a = ?");
			select.setInt(1, 1);
			select.setInt(2, 2);
			show("select", select);
			show("syntax error", connection.prepareStatement("CREATE STREAM x (a int,)"));
			show("refused", connection.prepareStatement("CREATE TEMP STREAM x (a int)"));
			for (int i = 0; i < 7; i++)		// the driver names its statements from the fifth time on
				try (PreparedStatement again = connection.prepareStatement("ALTER STREAM js SET (max_future = '1 day')")) {
					again.execute();
				}
			show("two in one", connection.prepareStatement("DROP CONTINUOUS VIEW jv; DROP STREAM js"));
			connection.setAutoCommit(false);
			show("create in a transaction", connection.prepareStatement("CREATE STREAM js (a int)"));
			connection.rollback();
			show("rolled back", connection.prepareStatement("SELECT 1 FROM pg_class WHERE relname = 'js'"));
			connection.rollback();
		}
	}
}
