import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.function.Consumer;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageView;

/**
 * Changes for how long messages stay invisible. Of four messages, one is acknowledged at once, one asked
 * back sooner and one later, and one acknowledged by the receipt handle that the change gave.
 */
final class Invisible {
    private static final Duration RECEIVED = Duration.ofSeconds(30);
    private static final Duration SOONER = Duration.ofSeconds(3);
    private static final Duration LATER = Duration.ofSeconds(35);

    private final Options options;
    private final Report report;
    private final SimpleConsumer consumer;
    private final Consumer<MessageView> sink;
    private final Map<Integer, Long> changed = new HashMap<>();

    Invisible(Options options, Report report, SimpleConsumer consumer, Consumer<MessageView> sink) {
        this.options = options;
        this.report = report;
        this.consumer = consumer;
        this.sink = sink;
    }

    void receive() {
        report.expect("redelivery");
        while (true) {
            try {
                for (MessageView message : consumer.receive(32, RECEIVED)) {
                    if (options.run().equals(message.getProperties().get("run"))) {
                        take(message, Integer.parseInt(message.getProperties().get("index")));
                    }
                }
            } catch (Exception error) {
                report.receiveFailed(error);
            }
        }
    }

    private void take(MessageView message, int index) throws ClientException {
        int role = index % 4;
        Long since = changed.get(index);
        if (since == null && role > 0) {
            changed.put(index, System.nanoTime());
            consumer.changeInvisibleDuration(message, role == 2 ? LATER : SOONER);
            if (role < 3) {
                return;
            }
        } else if (since != null) {
            long waited = (System.nanoTime() - since) / 1_000_000;
            boolean asAsked = role == 2 ? waited >= LATER.toMillis() - 1000
                : waited >= SOONER.toMillis() - 1000 && waited < RECEIVED.toMillis();
            report.claim(index + " came again", asAsked, "after " + waited + " ms");
        }
        consumer.ack(message);
        sink.accept(message);
    }
}
