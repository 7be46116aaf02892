import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;

/** Compares what arrives with what was sent and prints the result as one JSON line. */
final class Report {
    /** A message as one receiver gets it. */
    private record Copy(int receiver, int index) {
    }

    private final String client;
    private final Options options;
    private final long begin = System.nanoTime();
    private final Set<Copy> missing = new HashSet<>();
    private final Set<String> unseen = new TreeSet<>();
    private final List<String> wrong = new ArrayList<>();
    private final Map<String, Integer> lastOfGroup = new HashMap<>();
    private final Map<String, Object> extra = new HashMap<>();
    private int sent;
    private int received;
    private int duplicates;
    private String error;
    private long firstSendMillis = Long.MAX_VALUE;
    private long took;

    Report(String client, Options options) {
        this.client = client;
        this.options = options;
        if (Set.of("consume", "roundtrip", "recover", "query").contains(options.action)) {
            for (int i = 0; i < options.count * options.copies(); i++) {
                if (options.expects(i % options.count)) {
                    missing.add(new Copy(i / options.count, i % options.count));
                }
            }
        }
    }

    synchronized void sent() {
        sent++;
        firstSendMillis = Math.min(firstSendMillis, System.currentTimeMillis());
    }

    /** Something besides the messages that must be seen. */
    synchronized void expect(String fact) {
        unseen.add(fact);
    }

    synchronized void seen(String fact) {
        unseen.remove(fact);
        notifyAll();
    }

    synchronized boolean complete() {
        return missing.isEmpty() && unseen.isEmpty();
    }

    /** Something that must hold now. */
    synchronized void claim(String what, boolean holds, Object got) {
        if (!holds) {
            wrong.add(what + ": " + got);
        }
    }

    void received(byte[] body, String tag, Collection<String> keys, Map<String, String> properties) {
        received(0, body, tag, keys, properties);
    }

    /** Take one received message; messages of other runs are not ours to judge. */
    synchronized void received(
        int receiver, byte[] body, String tag, Collection<String> keys, Map<String, String> properties) {
        if (!options.run().equals(properties.get("run"))) {
            return;
        }
        int index = Integer.parseInt(properties.get("index"));
        received++;
        if (index >= options.count || !options.expects(index)) {
            wrong.add("a message that must not arrive did: " + index);
            return;
        }
        boolean again = !missing.remove(new Copy(receiver, index));
        if (again) {
            duplicates++;
        }
        Sample sample = new Sample(options.run(), index, options.size());
        compare(index, "body", Arrays.equals(sample.body(), body), body == null ? null : body.length + " bytes");
        compare(index, "tag", sample.tag().equals(tag), tag);
        compare(index, "keys", Set.copyOf(sample.keys()).equals(Set.copyOf(keys)), keys);
        sample.properties().forEach((key, value) ->
            compare(index, key, value.equals(properties.get(key)), properties.get(key)));
        if (options.kind().startsWith("fifo") && !again) {
            Integer last = lastOfGroup.put(receiver + sample.group(), index);
            compare(index, "order", last == null || last < index, "after " + last);
        }
        if (options.kind("delay")) {
            // The broker's timer works in whole seconds.
            long early = firstSendMillis + options.delayMillis() - 1000 - System.currentTimeMillis();
            compare(index, "delay", firstSendMillis == Long.MAX_VALUE || early <= 0, early + " ms early");
        }
        notifyAll();
    }

    /** Judge when a message was born, by its sender's clock. */
    synchronized void born(String index, long bornMillis) {
        long age = System.currentTimeMillis() - bornMillis;
        claim(index + " age", -1000 < age && age < 600_000, age + " ms");
        if (options.kind("delay")) {
            claim(index + " delay", age >= options.delayMillis() - 1000, "arrived after " + age + " ms");
        }
    }

    /** The message group of a FIFO message must be the one that it was sent with. */
    synchronized void ofGroup(String index, String group) {
        if (options.kind().startsWith("fifo")) {
            String expected = new Sample(options.run(), Integer.parseInt(index), 0).group();
            claim(index + " message group", expected.equals(group), group);
        }
    }

    private void compare(int index, String what, boolean same, Object got) {
        claim(index + " " + what, same, got);
    }

    /** Wait for every message and fact, then a moment longer for duplicates. */
    void await() throws InterruptedException {
        long deadline = System.currentTimeMillis() + options.timeoutSeconds() * 1000L;
        synchronized (this) {
            while (!complete() && System.currentTimeMillis() < deadline) {
                wait(Math.max(1, deadline - System.currentTimeMillis()));
            }
            took = System.nanoTime() - begin;
        }
        Thread.sleep(options.number("linger", 1000));
    }

    void failed(Throwable reason) {
        error = reason.toString();
    }

    /** Note a failed receive, unless all is here and the consumer merely closes. */
    synchronized void receiveFailed(Throwable reason) {
        if (!complete()) {
            extra.put("receive_error", reason.toString());
        }
    }

    synchronized void put(String key, Object value) {
        extra.put(key, value);
    }

    /** Print the line; return the exit code. */
    synchronized int print() {
        boolean ok = error == null && complete() && wrong.isEmpty()
            && (options.flag("allow-duplicates") || duplicates == 0)
            && (!sends() || sent == options.count + options.rolledBack());
        StringBuilder line = new StringBuilder("{");
        field(line, "client", client);
        field(line, "action", options.action);
        field(line, "kind", options.kind());
        field(line, "mode", options.mode());
        field(line, "ok", ok);
        field(line, "sent", sent);
        field(line, "received", received);
        field(line, "duplicates", duplicates);
        field(line, "missing", missing.size());
        field(line, "unseen", String.join(", ", unseen));
        field(line, "wrong", wrong.size());
        field(line, "first_wrong", wrong.isEmpty() ? "" : wrong.get(0));
        field(line, "error", error == null ? "" : error);
        extra.forEach((key, value) -> field(line, key, value));
        // A client may take long to shut down; that is not counted.
        field(line, "seconds", (took > 0 ? took : System.nanoTime() - begin) / 10_000_000 / 100.0);
        System.out.println(line.append("}"));
        return ok ? 0 : 1;
    }

    private boolean sends() {
        return Set.of("produce", "roundtrip", "query").contains(options.action);
    }

    private static void field(StringBuilder line, String key, Object value) {
        if (line.length() > 1) {
            line.append(", ");
        }
        line.append('"').append(key).append("\": ");
        if (value instanceof String text) {
            line.append('"').append(text.replace("\\", "\\\\").replace("\"", "\\\"")
                .replaceAll("\\p{Cntrl}+", " ")).append('"');
        } else {
            line.append(value);
        }
    }
}
