import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/**
 * The official remoting client, in any version since 4.9.
 * Kinds: normal, async, oneway, batch, fifo, delay, transaction, transaction-check, request-reply,
 * tags, sql, dlq, trace, compressed, namespace.
 * Modes: push (the client balances queues), pop (the broker does; 5.x), lite, pull, broadcast.
 */
public final class JavaRemoting {
    private static final String TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC";

    private final Options options;
    private final Report report;

    private JavaRemoting(Options options, Report report) {
        this.options = options;
        this.report = report;
    }

    public static void main(String[] words) {
        Options options = new Options(words);
        Report report = new Report(System.getProperty("peers.client", "java-remoting"), options);
        if (!options.get("serialize", "").isEmpty()) {
            // Read once, when the first class that needs it loads.
            System.setProperty("rocketmq.serialize.type", options.get("serialize", ""));
            String type = RemotingCommand.getSerializeTypeConfigInThisServer().name();
            report.claim("serialisation", type.equals(options.get("serialize", "")), type);
        }
        JavaRemoting client = new JavaRemoting(options, report);
        try {
            switch (options.action) {
                case "produce" -> new Sender(options, report).produce();
                case "consume" -> client.consume(() -> { });
                case "roundtrip" -> client.consume(new Sender(options, report)::produce);
                case "query" -> client.query();
                case "dead-letter" -> client.readDeadLetter();
                case "hold" -> {
                    Hold.run(options, new Receiver(options, report));
                    Runtime.getRuntime().exit(0);
                }
                case "bench-send" -> client.benchSend();
                case "bench-consume" -> client.benchConsume();
                default -> throw new IllegalArgumentException(options.action);
            }
        } catch (Throwable error) {
            error.printStackTrace();
            report.failed(error);
        }
        Runtime.getRuntime().exit(report.print());
    }

    private interface Step {
        void run() throws Exception;
    }

    private void consume(Step produce) throws Exception {
        if (options.mode().equals("pull")) {
            readByHand(produce);
            return;
        }
        Receiver receiver = new Receiver(options, report);
        try {
            receiver.start(receiver::check);
            Thread.sleep(options.number("settle", 1000));
            produce.run();
            report.await();
            switch (options.kind()) {
                case "dlq" -> readDeadLetter();
                case "trace" -> readTrace();
                case "namespace" -> sizeInNamespace();
                default -> { }
            }
        } finally {
            receiver.stop();
        }
    }

    private void readByHand(Step produce) throws Exception {
        Receiver receiver = new Receiver(options, report);
        try (Reader reader = Reader.ofGroup(options)) {
            reader.listen(report, receiver::check);
            Thread.sleep(options.number("settle", 1000));
            produce.run();
            report.await();
            report.expect("offsets");
            reader.checkOffsets(report, options.action.equals("roundtrip") ? options.count : 0);
        }
    }

    /** The message that was always refused must be in the dead letter queue of its group. */
    private void readDeadLetter() throws Exception {
        report.expect("dead letter");
        AtomicInteger letters = new AtomicInteger();
        try (Reader reader = Reader.ofAnyTopic(options)) {
            reader.follow("%DLQ%" + options.group(), () -> letters.get() > 0, message -> {
                if (!options.run().equals(message.getUserProperty("run"))) {
                    return;
                }
                letters.incrementAndGet();
                String index = message.getUserProperty("index");
                byte[] body = new Sample(options.run(), 0, options.size()).body();
                report.claim("dead letter", "0".equals(index) && java.util.Arrays.equals(body, message.getBody()), index);
                // A popped message tells the retry topic of its group and topic, in one of two spellings.
                String retry = "%RETRY%" + options.group();
                List<String> origins = List.of(options.topic(), retry + "_" + options.topic(),
                    retry + "+" + options.topic());
                report.claim("origin of the dead letter",
                    options.topic().equals(message.getProperty("DLQ_ORIGIN_TOPIC"))
                        || origins.contains(message.getProperty("RETRY_TOPIC")), message.getProperties());
                report.seen("dead letter");
            });
        }
    }

    /** The trace of every message must tell of its sending and of its consumption. */
    private void readTrace() throws Exception {
        List<String> expected = new ArrayList<>();
        for (int i = 0; i < options.count; i++) {
            for (String what : List.of("Pub ", "SubAfter ")) {
                expected.add(what + options.run() + "-" + i);
            }
        }
        expected.forEach(report::expect);
        try (Reader reader = Reader.ofAnyTopic(options)) {
            reader.follow(TRACE_TOPIC, report::complete, message -> {
                // Records end with character 2 and their fields with character 1.
                for (String record : new String(message.getBody(), StandardCharsets.UTF_8).split("\u0002")) {
                    List<String> words = List.of(record.split("[\u0001 ]"));
                    words.forEach(word -> report.seen(words.get(0) + " " + word));
                }
            });
        }
    }

    private void sizeInNamespace() throws Exception {
        try (Reader reader = Reader.ofAnyTopic(options)) {
            long size = reader.size(Setup.NAMESPACE + "%" + options.topic());
            report.claim("messages in the topic of the namespace", size >= options.count, size);
        }
    }

    private interface Query {
        List<MessageExt> ask() throws Exception;
    }

    /** Send messages and ask for each by its place, by its unique id and by its key. */
    private void query() throws Exception {
        long begin = System.currentTimeMillis() - 60_000;
        long end = begin + 3_600_000;
        Sender sender = new Sender(options, report);
        sender.produce();
        DefaultMQProducer asker =
            Sender.started(new DefaultMQProducer(options.group() + "-asker", Signer.of(options)), options);
        try {
            for (int i = 0; i < options.count; i++) {
                SendResult sent = sender.results().get(i);
                String key = options.run() + "-" + i;
                found(0, () -> List.of(asker.viewMessage(options.topic(), sent.getOffsetMsgId())), 1);
                found(1, () -> List.of(asker.viewMessage(options.topic(), sent.getMsgId())), 1);
                found(2, () -> asker.queryMessage(options.topic(), key, 32, begin, end).getMessageList(), 1);
            }
            String all = "all-" + options.run();
            int together = ask(() -> asker.queryMessage(options.topic(), all, 64, begin, end).getMessageList(),
                options.count).size();
            report.claim("messages with the common key", together == options.count, together);
        } finally {
            asker.shutdown();
        }
    }

    private void found(int way, Query query, int count) throws Exception {
        for (MessageExt message : ask(query, count)) {
            report.received(way, message.getBody(), message.getTags(), Setup.keys(message), message.getProperties());
        }
    }

    /** Ask until the broker's index, which is built after the answer to a send, knows as many messages. */
    private List<MessageExt> ask(Query query, int count) throws Exception {
        long deadline = System.currentTimeMillis() + 5000;
        while (true) {
            List<MessageExt> messages = List.of();
            Exception failure = null;
            try {
                messages = query.ask();
            } catch (MQClientException | MQBrokerException notFound) {
                failure = notFound;
            }
            if (messages.size() >= count || System.currentTimeMillis() > deadline) {
                if (failure != null) {
                    throw failure;
                }
                return messages;
            }
            Thread.sleep(50);
        }
    }

    /** Send as fast as the allowed number of unanswered sends permits. */
    private void benchSend() throws Exception {
        DefaultMQProducer producer =
            Sender.started(new DefaultMQProducer(options.group() + "-producer", Signer.of(options)), options);
        byte[] body = new byte[options.size()];
        Semaphore window = new Semaphore(options.concurrency());
        AtomicInteger failures = new AtomicInteger();
        SendCallback callback = new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                window.release();
            }

            @Override
            public void onException(Throwable error) {
                failures.incrementAndGet();
                window.release();
            }
        };
        long begin = System.nanoTime();
        for (int i = 0; i < options.count; i++) {
            window.acquire();
            producer.send(new Message(options.topic(), body), callback);
        }
        window.acquire(options.concurrency());
        rate(options.count, System.nanoTime() - begin, Map.of("failures", failures.get()));
        producer.shutdown();
    }

    /** Drain a topic that holds at least N messages; time from the first to the last. */
    private void benchConsume() throws Exception {
        AtomicInteger seen = new AtomicInteger();
        AtomicLong first = new AtomicLong();
        AtomicLong last = new AtomicLong();
        Receiver receiver = new Receiver(options, report);
        receiver.start((number, messages) -> {
            first.compareAndSet(0, System.nanoTime());
            seen.addAndGet(messages.size());
            last.set(System.nanoTime());
        });
        long deadline = System.currentTimeMillis() + Duration.ofSeconds(options.timeoutSeconds()).toMillis();
        while (seen.get() < options.count && System.currentTimeMillis() < deadline) {
            Thread.sleep(20);
        }
        rate(seen.get(), last.get() - first.get(), Map.of());
        receiver.stop();
    }

    private void rate(int messages, long nanos, Map<String, Object> more) {
        report.put("messages", messages);
        report.put("bench_seconds", nanos / 1_000_000 / 1000.0);
        report.put("per_second", Math.round(messages * 1e9 / Math.max(1, nanos)));
        more.forEach(report::put);
    }
}
