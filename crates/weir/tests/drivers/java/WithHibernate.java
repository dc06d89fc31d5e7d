// Hibernate with HikariCP, as a web application uses it: a request writes, and the next page loads its parts all at once, on other connections.

import jakarta.persistence.CascadeType;
import jakarta.persistence.Entity;
import jakarta.persistence.FetchType;
import jakarta.persistence.GeneratedValue;
import jakarta.persistence.Id;
import jakarta.persistence.ManyToOne;
import jakarta.persistence.OneToMany;
import jakarta.persistence.Table;
import jakarta.persistence.Version;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.hibernate.Session;
import org.hibernate.SessionFactory;
import org.hibernate.boot.registry.BootstrapServiceRegistryBuilder;
import org.hibernate.cfg.Configuration;

public class WithHibernate {
    static final int THREADS = 3, ROUNDS = 12;

    @Entity(name = "Customer")
    @Table(name = "customers")
    public static class Customer {
        @Id @GeneratedValue public Long id;
        public String name;
        @Version public int version;
        @OneToMany(mappedBy = "customer", cascade = CascadeType.ALL, orphanRemoval = true)
        public List<Invoice> invoices = new ArrayList<>();
    }

    @Entity(name = "Invoice")
    @Table(name = "invoices")
    public static class Invoice {
        @Id @GeneratedValue public Long id;
        public int amount;
        @ManyToOne(fetch = FetchType.LAZY) public Customer customer;
    }

    static final Map<String, Integer> missed = new TreeMap<>();

    static synchronized void note(String what, boolean is) {
        missed.merge(what, is ? 1 : 0, Integer::sum);
    }

    static void add(Customer customer, int amount) {
        Invoice invoice = new Invoice();
        invoice.amount = amount;
        invoice.customer = customer;
        customer.invoices.add(invoice);
    }

    static final ExecutorService threads = Executors.newFixedThreadPool(THREADS);

    /** Loads the parts of a page all at once. */
    static void page(SessionFactory factory, Part... parts) throws Exception {
        List<Future<?>> all = new ArrayList<>();
        for (Part part : parts) all.add(threads.submit(() -> factory.inSession(part::load)));
        for (Future<?> one : all) one.get();
    }

    interface Part {
        void load(Session session);
    }

    static void work(SessionFactory factory) throws Exception {
        for (int round = 0; round < ROUNDS; round++) {
            String name = "customer " + round;
            Long id = factory.fromTransaction(session -> {
                Customer customer = new Customer();
                customer.name = name;
                add(customer, 1);
                add(customer, 2);
                session.persist(customer);
                return customer.id;
            });
            page(factory,
                session -> note("found", session.find(Customer.class, id) == null),
                session -> {
                    Customer customer = session.find(Customer.class, id);
                    note("invoices", customer == null || customer.invoices.size() != 2);
                },
                session -> {
                    session.beginTransaction();
                    note("by name", session.createQuery("from Customer where name = :name", Customer.class).setParameter("name", name).getResultList().size() != 1);
                    session.getTransaction().commit();
                });
            factory.inTransaction(session -> {
                Customer customer = session.find(Customer.class, id);
                note("to change", customer == null);
                if (customer != null) {
                    customer.name = name + ", changed";
                    customer.invoices.removeIf(invoice -> invoice.amount == 1);
                    add(customer, 4);
                }
            });
            page(factory,
                session -> note("sums", !Long.valueOf(6).equals(session
                    .createQuery("select sum(i.amount) from Invoice i where i.customer.id = :id", Long.class).setParameter("id", id).getSingleResult())),
                session -> note("counts", !Long.valueOf(2).equals(session
                    .createNativeQuery("select count(*) from invoices where customer_id = :id and amount > 1", Long.class).setParameter("id", id).getSingleResult())),
                session -> {
                    Customer customer = session.find(Customer.class, id);
                    note("versions", customer == null || customer.version != 1 || !customer.name.endsWith("changed"));
                });
            if (round % 2 == 1) {
                factory.inTransaction(session -> {
                    Customer customer = session.find(Customer.class, id);
                    if (customer != null) session.remove(customer);
                });
                Part gone = session -> note("deleted", session.find(Customer.class, id) != null);
                page(factory, gone, gone, gone);
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, String> at = System.getenv();
        // Java compiled this file into memory, where only its own class loader looks.
        var loader = new BootstrapServiceRegistryBuilder().applyClassLoader(WithHibernate.class.getClassLoader());
        Configuration configuration = new Configuration(loader.build())
            .addAnnotatedClass(Customer.class).addAnnotatedClass(Invoice.class)
            .setProperty("hibernate.connection.url", "jdbc:postgresql://" + at.get("PGHOST") + ":" + at.get("PGPORT") + "/" + at.get("PGDATABASE"))
            .setProperty("hibernate.connection.username", at.get("PGUSER"))
            .setProperty("hibernate.connection.password", "")
            .setProperty("hibernate.hikari.maximumPoolSize", String.valueOf(THREADS + 1))
            .setProperty("hibernate.hbm2ddl.auto", "update");
        try (SessionFactory factory = configuration.buildSessionFactory()) {
            work(factory);
            threads.shutdown();
            System.out.println("missed: " + missed);
            factory.inSession(session -> {
                System.out.println("customers: " + session.createQuery("select count(c) from Customer c", Long.class).getSingleResult());
                System.out.println("invoices: " + session.createQuery("select count(i) from Invoice i", Long.class).getSingleResult());
            });
        }
        System.out.println("done");
    }
}
