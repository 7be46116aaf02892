import java.io.IOException;
import java.util.Collection;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.impl.consumer.RebalanceImpl;
import org.apache.rocketmq.common.message.MessageQueue;

/** Keeps a consumer running and tells, line by line, which queues it owns. */
final class Hold {
    private Hold() {
    }

    static void run(Options options, Receiver receiver) throws Exception {
        DefaultMQPushConsumer consumer = receiver.create();
        AtomicInteger received = new AtomicInteger();
        consumer.subscribe(options.topic(), options.tags());
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            received.addAndGet(messages.size());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        watchInput();
        Collection<String> last = null;
        while (true) {
            Collection<String> owned = owned(consumer, options);
            if (!owned.equals(last)) {
                System.out.println(line(owned, received.get()));
                last = owned;
            }
            if (inputClosed) {
                consumer.shutdown();
                return;
            }
            Thread.sleep(20);
        }
    }

    private static volatile boolean inputClosed;

    private static void watchInput() {
        Thread thread = new Thread(() -> {
            try {
                while (System.in.read() >= 0) { }
            } catch (IOException closed) {
                // Closed is what we wait for.
            }
            inputClosed = true;
        });
        thread.setDaemon(true);
        thread.start();
    }

    private static Collection<String> owned(DefaultMQPushConsumer consumer, Options options) throws Exception {
        RebalanceImpl rebalance = consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl();
        Collection<MessageQueue> queues = new TreeSet<>(rebalance.getProcessQueueTable().keySet());
        if (options.mode().equals("pop")) {
            Object table = rebalance.getClass().getMethod("getPopProcessQueueTable").invoke(rebalance);
            ((java.util.Map<?, ?>) table).keySet().forEach(queue -> queues.add((MessageQueue) queue));
        }
        return queues.stream().filter(queue -> queue.getTopic().equals(options.topic()))
            .map(Receiver::queueFact).collect(Collectors.toCollection(TreeSet::new));
    }

    private static String line(Collection<String> owned, int received) {
        String names = owned.stream().map(name -> '"' + name + '"').collect(Collectors.joining(", "));
        return "{\"millis\": " + System.currentTimeMillis() + ", \"nanos\": " + System.nanoTime()
            + ", \"queues\": " + owned.size() + ", \"owned\": [" + names + "], \"received\": " + received + "}";
    }
}
