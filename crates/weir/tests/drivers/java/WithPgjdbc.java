import java.io.StringReader;
import java.io.StringWriter;
import java.sql.BatchUpdateException;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Savepoint;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.postgresql.PGConnection;
import org.postgresql.PGNotification;

/** pgjdbc with its defaults: a statement gets a name at its fifth use; batches, fetch sizes, COPY, savepoints, LISTEN. */
public class WithPgjdbc {
    static void show(String what, Object... values) {
        System.out.println(what + ": " + Arrays.deepToString(values));
    }

    interface Action {
        Object run() throws Exception;
    }

    static void fails(String what, Action action) throws Exception {
        try {
            show(what, action.run());
        } catch (SQLException error) {
            show(what, error.getSQLState());
        }
    }

    static Connection connect(String more) throws SQLException {
        String url = "jdbc:postgresql://" + System.getenv("PGHOST") + ":" + System.getenv("PGPORT") + "/" + System.getenv("PGDATABASE");
        return DriverManager.getConnection(url + "?" + more, System.getenv("PGUSER"), "");
    }

    static Object one(Connection conn, String text, Object... values) throws SQLException {
        try (PreparedStatement statement = conn.prepareStatement(text)) {
            for (int at = 0; at < values.length; at++) statement.setObject(at + 1, values[at]);
            try (ResultSet rows = statement.executeQuery()) {
                return rows.next() ? rows.getObject(1) : "no row";
            }
        }
    }

    static int execute(Connection conn, String text) throws SQLException {
        try (Statement statement = conn.createStatement()) {
            return statement.executeUpdate(text);
        }
    }

    static void prepared(Connection conn) throws Exception {
        execute(conn, "create table items (a int primary key, b text, at timestamptz default '2024-02-03 04:05:06Z')");
        execute(conn, "insert into items select n, 'item ' || n from generate_series(1, 1000) n");
        try (PreparedStatement statement = conn.prepareStatement("select b, a from items where a = ?")) {
            for (int number = 1; number <= 40; number++) {
                statement.setInt(1, number);
                try (ResultSet rows = statement.executeQuery()) {
                    if (!rows.next()) show("no row", number);
                    else if (!rows.getString(1).equals("item " + number) || rows.getInt("a") != number) show("wrong", number, rows.getString(1));
                }
            }
            show("is prepared", statement.unwrap(org.postgresql.PGStatement.class).isUseServerPrepare());
        }
        // A text that comes again is the same statement of the server, of a cache of 256.
        for (int number = 1; number <= 20; number++) one(conn, "select b, a from items where a = ?", number);
        long sum = 0;
        for (int turn = 0; turn < 6; turn++)
            for (int number = 0; number < 60; number++) sum += (Integer) one(conn, "select " + number + " + ?::int", turn);
        show("sum", sum);
        for (int turn = 0; turn < 8; turn++) {
            fails("by zero", () -> one(conn, "select 1 / ?::int", 0));
            fails("twice", () -> one(conn, "insert into items values (?) returning a", 1));
        }
        // Another type for the same text: the driver prepares it anew.
        try (PreparedStatement statement = conn.prepareStatement("select ?::text || a from items where a = 7")) {
            for (int turn = 0; turn < 12; turn++) {
                if (turn % 2 == 0) statement.setInt(1, turn); else statement.setString(1, "text " + turn);
                try (ResultSet rows = statement.executeQuery()) {
                    rows.next();
                    if (turn > 9) show("types", rows.getString(1));
                }
            }
        }
        try (PreparedStatement statement = conn.prepareStatement("select a, b, at from items where a = ?")) {
            show("metadata", statement.getMetaData().getColumnName(2), statement.getParameterMetaData().getParameterTypeName(1));
            for (int turn = 0; turn < 8; turn++) {
                statement.setInt(1, 5);
                try (ResultSet rows = statement.executeQuery()) {
                    rows.next();
                    if (turn > 5) show("at", rows.getTimestamp(3).toInstant());
                }
            }
        }
        try (Statement statement = conn.createStatement()) {
            show("several", statement.execute("select 1; update items set b = 'x' where a = 3; select 2"), statement.getMoreResults(), statement.getUpdateCount(), statement.getMoreResults());
        }
    }

    static void batches(Connection conn) throws Exception {
        try (PreparedStatement statement = conn.prepareStatement("insert into items (a, b) values (?, ?)")) {
            for (int turn = 0; turn < 8; turn++) {
                for (int number = 0; number < 150; number++) {
                    statement.setInt(1, 10000 + turn * 1000 + number);
                    statement.setString(2, "batch");
                    statement.addBatch();
                }
                int[] counts = statement.executeBatch();
                if (turn == 7) show("batch", counts.length, counts[0] != 0);
            }
            statement.setInt(1, 30000);
            statement.setString(2, "kept?");
            statement.addBatch();
            statement.setInt(1, 1);
            statement.setString(2, "twice");
            statement.addBatch();
            try {
                statement.executeBatch();
            } catch (BatchUpdateException error) {
                show("failing batch", error.getSQLState());
            }
        }
        show("count", one(conn, "select count(*) from items where a between 10000 and 29999"), one(conn, "select count(*) from items where a = 30000"));
        try (Statement statement = conn.createStatement()) {
            for (int number = 0; number < 5; number++) statement.addBatch("update items set b = 'again' where a = " + number);
            show("texts", statement.executeBatch());
        }
        try (PreparedStatement statement = conn.prepareStatement("insert into items (a, b) values (?, ?)", Statement.RETURN_GENERATED_KEYS)) {
            for (int number = 0; number < 3; number++) {
                statement.setInt(1, 40000 + number);
                statement.setString(2, "keys");
                statement.addBatch();
            }
            statement.executeBatch();
            List<Integer> keys = new ArrayList<>();
            ResultSet rows = statement.getGeneratedKeys();
            while (rows.next()) keys.add(rows.getInt(1));
            show("keys", keys);
        }
    }

    static void fetches(Connection conn) throws Exception {
        conn.setAutoCommit(false);
        for (int turn = 0; turn < 7; turn++) {
            try (PreparedStatement statement = conn.prepareStatement("select a from items where a <= ? order by a")) {
                statement.setFetchSize(30);
                statement.setInt(1, 500);
                long sum = 0;
                try (ResultSet rows = statement.executeQuery()) {
                    // Two cursors open at once.
                    try (PreparedStatement second = conn.prepareStatement("select b from items where a > ? order by a")) {
                        second.setFetchSize(10);
                        second.setInt(1, 500);
                        ResultSet others = second.executeQuery();
                        while (rows.next()) {
                            sum += rows.getInt(1);
                            if (rows.getInt(1) % 50 == 0) others.next();
                        }
                        if (turn > 4) show("fetched", sum, others.getString(1));
                    }
                }
            }
            conn.commit();
        }
        conn.setReadOnly(true);
        show("read only", one(conn, "select count(*) from items"));
        fails("write", () -> execute(conn, "delete from items"));
        conn.rollback();
        conn.setReadOnly(false);
        for (int level : new int[] {Connection.TRANSACTION_READ_COMMITTED, Connection.TRANSACTION_REPEATABLE_READ, Connection.TRANSACTION_SERIALIZABLE}) {
            conn.setTransactionIsolation(level);
            show("isolation", one(conn, "show transaction_isolation"), conn.getTransactionIsolation() == level);
            conn.commit();
        }
        conn.setTransactionIsolation(Connection.TRANSACTION_READ_COMMITTED);
        execute(conn, "insert into items values (50000, 'outer')");
        Savepoint here = conn.setSavepoint("Here");
        fails("inner", () -> execute(conn, "insert into items values (50000, 'twice')"));
        fails("failed", () -> one(conn, "select 1"));
        conn.rollback(here);
        execute(conn, "insert into items values (50001, 'after')");
        conn.commit();
        conn.setAutoCommit(true);
        show("kept", one(conn, "select string_agg(b, ',' order by a) from items where a >= 50000"));
    }

    static void copies(Connection conn) throws Exception {
        var copies = conn.unwrap(PGConnection.class).getCopyAPI();
        StringBuilder text = new StringBuilder();
        for (int number = 0; number < 3000; number++) text.append(60000 + number).append(",copied\n");
        show("copied", copies.copyIn("copy items (a, b) from stdin csv", new StringReader(text.toString())));
        fails("twice", () -> copies.copyIn("copy items (a, b) from stdin csv", new StringReader("1,there\n")));
        StringWriter out = new StringWriter();
        show("out", copies.copyOut("copy (select a from items where a < 5 order by a) to stdout", out), out.toString());
        var in = copies.copyIn("copy items (a, b) from stdin");
        in.writeToCopy("70000\tx\n".getBytes(), 0, 8);
        in.cancelCopy();
        show("cancelled", one(conn, "select count(*) from items where a = 70000"));
    }

    static void notifications() throws Exception {
        try (Connection listener = connect(""); Connection speaker = connect("")) {
            execute(listener, "listen news");
            for (int number = 0; number < 3; number++) one(speaker, "select pg_notify('news', ?)::text", "it's \"" + number + "\"");
            List<String> heard = new ArrayList<>();
            while (heard.size() < 3)
                for (PGNotification notification : listener.unwrap(PGConnection.class).getNotifications(10000)) heard.add(notification.getName() + " " + notification.getParameter());
            show("heard", heard);
            execute(listener, "unlisten *");
        }
    }

    static void cancels(Connection conn) throws Exception {
        try (Statement statement = conn.createStatement()) {
            statement.setQueryTimeout(1);
            fails("query timeout", () -> statement.executeUpdate("insert into items select 1 from pg_sleep(60)"));
        }
        show("goes on", one(conn, "select 1"), conn.isValid(5));
    }

    static void settings() throws Exception {
        try (Connection conn = connect("ApplicationName=jdbc+test&options=-c%20work_mem=9MB&currentSchema=public&readOnly=true")) {
            show("settings", one(conn, "show work_mem"), one(conn, "show search_path"), one(conn, "show application_name"), conn.isReadOnly());
            conn.setClientInfo("ApplicationName", "changed");
            for (int turn = 0; turn < 7; turn++) one(conn, "select count(*) from items where a < ?", turn);
            show("changed", one(conn, "show application_name"), conn.getSchema());
            conn.setSchema("pg_catalog");
            show("schema", conn.getSchema());
            var tables = conn.getMetaData().getTables(null, "public", "%", new String[] {"TABLE"});
            while (tables.next()) show("table", tables.getString("TABLE_NAME"));
            var keys = conn.getMetaData().getPrimaryKeys(null, "public", "items");
            while (keys.next()) show("key", keys.getString("COLUMN_NAME"));
        }
    }

    static void threads() throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(6);
        List<Future<Long>> results = new ArrayList<>();
        for (int thread = 0; thread < 6; thread++) {
            int number = thread;
            Callable<Long> work = () -> {
                long sum = 0;
                try (Connection conn = connect("")) {
                    for (int turn = 0; turn < 30; turn++) {
                        conn.setAutoCommit(false);
                        try (PreparedStatement insert = conn.prepareStatement("insert into items values (?, 'thread')")) {
                            insert.setInt(1, 100000 + number * 1000 + turn);
                            insert.executeUpdate();
                        }
                        conn.commit();
                        conn.setAutoCommit(true);
                        sum += (Integer) one(conn, "select a from items where a = ?", 100000 + number * 1000 + turn) - 100000;
                    }
                }
                return sum;
            };
            results.add(threads.submit(work));
        }
        threads.shutdown();
        long sum = 0;
        for (Future<Long> result : results) sum += result.get();
        show("threads", sum);
    }

    static void all(String more) throws Exception {
        show("==", more);
        try (Connection conn = connect(more)) {
            prepared(conn);
            batches(conn);
            fetches(conn);
            copies(conn);
            notifications();
            cancels(conn);
            settings();
            threads();
            show("status", conn.getMetaData().getDriverVersion().startsWith("42."));
            execute(conn, "drop table items");
        }
    }

    public static void main(String[] arguments) throws Exception {
        all("");
        all("reWriteBatchedInserts=true&binaryTransfer=true");
        all("preferQueryMode=extendedCacheEverything&prepareThreshold=1");
        System.out.println("done");
    }
}
