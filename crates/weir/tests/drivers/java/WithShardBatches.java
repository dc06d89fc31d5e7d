import java.sql.BatchUpdateException;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** Batches of pgjdbc whose rows lie on several shards: with generated keys, rewritten into inserts of many rows, in transactions and outside. */
public class WithShardBatches {
    static void show(String what, Object... values) {
        System.out.println(what + ": " + Arrays.deepToString(values));
    }

    static Connection connect(String more) throws SQLException {
        String url = "jdbc:postgresql://" + System.getenv("PGHOST") + ":" + System.getenv("PGPORT") + "/" + System.getenv("PGDATABASE");
        return DriverManager.getConnection(url + "?" + more, System.getenv("PGUSER"), "");
    }

    interface Batch {
        Statement fill(Connection conn) throws SQLException;
    }

    static List<Object> keys(Statement statement) throws SQLException {
        List<Object> keys = new ArrayList<>();
        try (ResultSet rows = statement.getGeneratedKeys()) {
            while (rows.next()) keys.add(rows.getObject(1));
        }
        return keys;
    }

    static void run(String what, Connection conn, Batch batch) throws SQLException {
        try (Statement statement = batch.fill(conn)) {
            show(what, statement.executeBatch(), keys(statement));
            if (!conn.getAutoCommit()) conn.commit();
        } catch (BatchUpdateException error) {
            System.err.println(what + ": " + error.getMessage());
            show(what, error.getSQLState(), error.getUpdateCounts());
            if (!conn.getAutoCommit()) conn.rollback();
        }
        rows(what, conn);
    }

    static void rows(String what, Connection conn) throws SQLException {
        try (Statement statement = conn.createStatement();
                ResultSet rows = statement.executeQuery("select id, balance, note from accounts where id > 100 or id < 10 order by id")) {
            List<String> all = new ArrayList<>();
            while (rows.next()) all.add(rows.getString(1) + " " + rows.getString(2) + " " + rows.getString(3));
            show(what + " leaves", all);
        }
        if (!conn.getAutoCommit()) conn.commit();
    }

    static PreparedStatement inserts(PreparedStatement statement, int from, int to) throws SQLException {
        for (int id = from; id < to; id++) {
            statement.setInt(1, id);
            statement.setInt(2, id % 9);
            statement.setString(3, "batch " + id);
            statement.addBatch();
        }
        return statement;
    }

    static void one(Connection conn) throws SQLException {
        String text = "insert into accounts (id, balance, note) values (?, ?, ?)";
        for (int at = 0; at < 7; at++) {
            int from = 101 + at * 20;
            run("inserts", conn, c -> inserts(c.prepareStatement(text), from, from + 11));
        }
        run("keys", conn, c -> inserts(c.prepareStatement(text, Statement.RETURN_GENERATED_KEYS), 301, 312));
        run("named keys", conn, c -> inserts(c.prepareStatement(text, new String[] {"id"}), 321, 332));
        run("twice", conn, c -> inserts(inserts(c.prepareStatement(text), 341, 350), 5, 6));
        run("twice, with keys", conn, c -> inserts(inserts(c.prepareStatement(text, new String[] {"id"}), 341, 350), 5, 6));
        run("twice at first", conn, c -> inserts(inserts(c.prepareStatement(text), 5, 6), 341, 350));
        run("more", conn, c -> inserts(c.prepareStatement(text), 1001, 1301));
        run("many", conn, c -> {
            PreparedStatement statement = c.prepareStatement("delete from accounts where id = ?");
            for (int id = 1001; id < 1301; id++) {
                statement.setInt(1, id);
                statement.addBatch();
            }
            return statement;
        });
        run("updates", conn, c -> {
            PreparedStatement statement = c.prepareStatement("update accounts set balance = balance + ? where id = ?");
            for (int id = 1; id < 10; id++) {
                statement.setInt(1, id);
                statement.setInt(2, id);
                statement.addBatch();
            }
            return statement;
        });
        run("texts", conn, c -> {
            Statement statement = c.createStatement();
            statement.addBatch("insert into accounts values (401, 1, 'text')");
            statement.addBatch("update accounts set note = 'changed' where id = 2");
            statement.addBatch("insert into accounts values (402, 1, 'text'), (403, 2, 'text'), (404, 3, 'text')");
            statement.addBatch("delete from accounts where id > 300");
            statement.addBatch("insert into plain values (1, 'plain') on conflict do nothing");
            return statement;
        });
        run("logs", conn, c -> {
            PreparedStatement statement =
                    c.prepareStatement("insert into logs (account, note) values (?, 'log')", new String[] {"account", "id"});
            for (int id = 1; id < 10; id++) {
                statement.setInt(1, id);
                statement.addBatch();
            }
            return statement;
        });
        try (Statement statement = conn.createStatement()) {
            show("cleaned", statement.executeUpdate("delete from accounts where id > 100"));
            if (!conn.getAutoCommit()) conn.commit();
        }
    }

    public static void main(String[] arguments) throws Exception {
        for (String more : new String[] {"", "reWriteBatchedInserts=true", "prepareThreshold=1", "prepareThreshold=0&reWriteBatchedInserts=true"}) {
            for (boolean commits : new boolean[] {true, false}) {
                show("way", more, commits);
                try (Connection conn = connect(more)) {
                    conn.setAutoCommit(commits);
                    one(conn);
                }
            }
        }
        System.out.println("done");
    }
}
