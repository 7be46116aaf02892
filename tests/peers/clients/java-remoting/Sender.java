import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.MessageQueueSelector;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Sends the messages of a run, in the way that its kind tells. */
final class Sender {
    // Five seconds, for clients that know delays by level only.
    private static final int DELAY_LEVEL = 2;
    private static final boolean LEVELS_ONLY = !Setup.has(Message.class, "setDelayTimeMs");
    private static final long REQUEST_TIMEOUT = 10_000;

    private final Options options;
    private final Report report;
    private final List<SendResult> results = new ArrayList<>();

    Sender(Options options, Report report) {
        this.options = options;
        this.report = report;
        if (options.kind("delay") && LEVELS_ONLY) {
            options.set("delay", "5000");
        }
    }

    static DefaultMQProducer started(DefaultMQProducer producer, Options options) throws Exception {
        Setup.configure(producer, options);
        producer.setSendMsgTimeout(10_000);
        producer.start();
        return producer;
    }

    /** What the broker answered to each message. */
    List<SendResult> results() {
        return results;
    }

    void produce() throws Exception {
        DefaultMQProducer producer = create();
        compressWith(producer, options.get("codec", ""));
        started(producer, options);
        try {
            produce(producer);
        } finally {
            producer.shutdown();
        }
    }

    private DefaultMQProducer create() {
        String group = options.group() + "-producer";
        if (options.kind().startsWith("transaction")) {
            TransactionMQProducer producer = new TransactionMQProducer(group, Signer.of(options));
            producer.setTransactionListener(new Decider());
            return producer;
        }
        return new DefaultMQProducer(group, Signer.of(options), options.kind("trace"), null);
    }

    /** Choose ZLIB, LZ4 or ZSTD; 4.9 clients know only the first. */
    private static void compressWith(DefaultMQProducer producer, String codec) throws ReflectiveOperationException {
        if (!codec.isEmpty()) {
            Class<?> type = Class.forName("org.apache.rocketmq.common.compression.CompressionType");
            Setup.set(producer, "setCompressType", type, type.getMethod("valueOf", String.class).invoke(null, codec));
        }
    }

    private void produce(DefaultMQProducer producer) throws Exception {
        switch (options.kind()) {
            case "batch" -> sendBatch(producer);
            case "async" -> sendAsync(producer);
            case "request-reply" -> request(producer);
            default -> {
                List<MessageQueue> queues = queues(producer);
                for (int i = 0; i < options.count + options.rolledBack(); i++) {
                    send(producer, i, queues);
                }
            }
        }
        // Unresolved transactions are asked about later, and traces are sent later: stay for that.
        if (options.kind("transaction-check") || options.kind("trace")) {
            report.await();
        }
    }

    /** The queues to send to in turn, or none to leave the choice to the client. */
    private List<MessageQueue> queues(DefaultMQProducer producer) throws Exception {
        if (!options.flag("spread")) {
            return List.of();
        }
        List<MessageQueue> queues = producer.fetchPublishMessageQueues(options.topic()).stream().sorted().toList();
        queues.stream().limit(options.count).forEach(queue -> report.expect(Receiver.queueFact(queue)));
        return queues;
    }

    private void send(DefaultMQProducer producer, int index, List<MessageQueue> queues) throws Exception {
        Message message = Setup.message(options, index);
        MessageQueue queue = queues.isEmpty() ? null : queues.get(index % queues.size());
        switch (options.kind()) {
            case "oneway" -> {
                if (queue == null) {
                    producer.sendOneway(message);
                } else {
                    producer.sendOneway(message, queue);
                }
                report.sent();
            }
            case "fifo" -> accepted(sendInOrder(producer, message, new Sample(options.run(), index, 0).group()));
            case "delay" -> accepted(producer.send(delayed(message)));
            case "transaction", "transaction-check" ->
                accepted(producer.sendMessageInTransaction(message, index));
            default -> accepted(queue == null ? producer.send(message) : producer.send(message, queue));
        }
    }

    private void accepted(SendResult result) {
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            throw new IllegalStateException("send status " + result.getSendStatus());
        }
        results.add(result);
        report.sent();
    }

    private static SendResult sendInOrder(DefaultMQProducer producer, Message message, String group) throws Exception {
        // A proxy knows a FIFO message by this property alone.
        MessageAccessor.putProperty(message, Setup.SHARDING_KEY, group);
        return producer.send(message,
            (queues, m, key) -> queues.get(Math.floorMod(key.hashCode(), queues.size())), group);
    }

    private Message delayed(Message message) throws Exception {
        if (LEVELS_ONLY) {
            message.setDelayTimeLevel(DELAY_LEVEL);
        } else {
            Setup.set(message, "setDelayTimeMs", long.class, (long) options.delayMillis());
        }
        return message;
    }

    private void sendBatch(DefaultMQProducer producer) throws Exception {
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < options.count; i++) {
            batch.add(Setup.message(options, i));
        }
        accepted(producer.send(batch));
        for (int i = 1; i < options.count; i++) {
            report.sent();
        }
    }

    private void sendAsync(DefaultMQProducer producer) throws Exception {
        CountDownLatch answered = new CountDownLatch(options.count);
        SendCallback callback = new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                report.claim("send status", result.getSendStatus() == SendStatus.SEND_OK, result.getSendStatus());
                report.sent();
                answered.countDown();
            }

            @Override
            public void onException(Throwable error) {
                report.failed(error);
                answered.countDown();
            }
        };
        List<MessageQueue> queues = queues(producer);
        for (int i = 0; i < options.count; i++) {
            Message message = Setup.message(options, i);
            if (queues.isEmpty()) {
                producer.send(message, callback);
            } else {
                producer.send(message, queues.get(i % queues.size()), callback);
            }
        }
        report.claim("callbacks", answered.await(options.timeoutSeconds(), TimeUnit.SECONDS), "too few");
    }

    /**
     * Ask every second question by a blocking call and the others with a callback. Always with a choice
     * of queue: without one, clients take the request itself or the end of its sending for the reply.
     */
    private void request(DefaultMQProducer producer) throws Exception {
        CountDownLatch answered = new CountDownLatch(options.count / 2);
        MessageQueueSelector inTurn = (queues, message, index) -> queues.get((Integer) index % queues.size());
        for (int i = 0; i < options.count; i++) {
            int index = i;
            report.expect("reply " + index);
            report.sent();
            Message message = Setup.message(options, index);
            if (index % 2 == 0) {
                replied(index, producer.request(message, inTurn, index, REQUEST_TIMEOUT));
                continue;
            }
            producer.request(message, inTurn, index, new RequestCallback() {
                @Override
                public void onSuccess(Message reply) {
                    replied(index, reply);
                    answered.countDown();
                }

                @Override
                public void onException(Throwable error) {
                    report.failed(error);
                    answered.countDown();
                }
            }, REQUEST_TIMEOUT);
        }
        answered.await(options.timeoutSeconds(), TimeUnit.SECONDS);
    }

    private void replied(int index, Message reply) {
        String text = reply == null ? "nothing" : new String(reply.getBody(), StandardCharsets.UTF_8);
        report.claim("reply " + index, text.equals(Receiver.replyTo(options.run(), index)), text);
        report.seen("reply " + index);
    }

    /** Commits, rolls back or, to be asked again, says nothing. */
    private final class Decider implements TransactionListener {
        Decider() {
            for (int i = 0; options.kind("transaction-check") && i < options.count; i++) {
                report.expect("check of " + i);
            }
        }

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object index) {
            if (options.kind("transaction-check")) {
                return LocalTransactionState.UNKNOW;
            }
            return (Integer) index < options.count
                ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.ROLLBACK_MESSAGE;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            report.seen("check of " + message.getUserProperty("index"));
            return LocalTransactionState.COMMIT_MESSAGE;
        }
    }
}
