import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.impl.consumer.DefaultMQPushConsumerImpl;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Receives messages in the way that mode and kind tell, and hands them to a report. */
final class Receiver {
    interface Sink {
        void take(int receiver, List<MessageExt> messages);
    }

    private static final String SQL = "index between 3 and 7";
    private static final int SUBSCRIPTION_PARSE_FAILED = 23;

    private final Options options;
    private final Report report;
    private final Set<String> queues = new HashSet<>();
    private final Set<String> brokers = new HashSet<>();
    private final List<Runnable> stops = new ArrayList<>();
    private final AtomicInteger refused;
    private DefaultMQProducer replier;

    Receiver(Options options, Report report) {
        this.options = options;
        this.report = report;
        this.refused = new AtomicInteger(options.number("refuse", 0));
        if (refused.get() > 0) {
            report.expect("redelivery");
        }
    }

    static String replyTo(String run, int index) {
        return "reply to " + run + "/" + index;
    }

    static String queueFact(MessageQueue queue) {
        return queue.getBrokerName() + "/" + queue.getQueueId();
    }

    /** Start as many consumers as each message has receivers. */
    void start(Sink sink) throws Exception {
        if (options.kind("sql")) {
            expectRefusal();
        }
        if (options.kind("request-reply")) {
            replier = Sender.started(new DefaultMQProducer(options.group() + "-replier", Signer.of(options)), options);
            stops.add(replier::shutdown);
        }
        for (int i = 0; i < options.copies(); i++) {
            stops.add(options.mode().equals("lite") ? startLite(sink) : startPush(sink, i));
        }
    }

    void stop() {
        stops.forEach(Runnable::run);
    }

    /** Compare messages with what was sent. */
    void check(int receiver, List<MessageExt> messages) {
        for (MessageExt message : messages) {
            inspect(message);
            report.received(receiver, message.getBody(), message.getTags(), Setup.keys(message),
                message.getProperties());
            if (replier != null) {
                reply(message);
            }
        }
    }

    private void inspect(MessageExt message) {
        if (message.getReconsumeTimes() > 0) {
            report.seen("redelivery");
        }
        if (options.mode().equals("pop")) {
            report.claim("popped", message.getProperty("POP_CK") != null, message.getProperties());
        }
        if (options.kind("compressed")) {
            report.claim("compressed in store", message.getStoreSize() < options.size() / 2, message.getStoreSize());
        }
        if (options.kind("namespace")) {
            report.claim("topic without namespace", message.getTopic().equals(options.topic()), message.getTopic());
        }
        String index = message.getUserProperty("index");
        if (index != null && options.run().equals(message.getUserProperty("run"))) {
            report.ofGroup(index, message.getProperty(Setup.SHARDING_KEY));
            report.born(index, message.getBornTimestamp());
        }
        noteQueue(message.getBrokerName(), message.getQueueId());
    }

    private synchronized void noteQueue(String broker, int queue) {
        queues.add(broker + "/" + queue);
        brokers.add(broker);
        report.put("queues", queues.size());
        report.put("brokers", brokers.size());
        report.seen(broker + "/" + queue);
    }

    private void reply(MessageExt message) {
        try {
            int index = Integer.parseInt(message.getUserProperty("index"));
            replier.send(MessageUtil.createReplyMessage(message,
                replyTo(options.run(), index).getBytes(StandardCharsets.UTF_8)));
        } catch (Exception error) {
            report.failed(error);
        }
    }

    DefaultMQPushConsumer create() throws Exception {
        DefaultMQPushConsumer consumer =
            new DefaultMQPushConsumer(options.group(), Signer.of(options), new AllocateMessageQueueAveragely(),
                options.kind("trace"), null);
        Setup.configure(consumer, options);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeMessageBatchMaxSize(options.number("batch", 1));
        switch (options.mode()) {
            // Only the broker's queue assignment (QUERY_ASSIGNMENT) hands out pop queues.
            case "pop" -> {
                Setup.set(consumer, "setClientRebalance", boolean.class, false);
                hurryPop(consumer);
            }
            case "broadcast" -> broadcast(consumer);
            default -> { }
        }
        return consumer;
    }

    /** Let a refused message come again after a second, not after half a minute. */
    private static void hurryPop(DefaultMQPushConsumer consumer) throws ReflectiveOperationException {
        Field levels = DefaultMQPushConsumerImpl.class.getDeclaredField("popDelayLevel");
        levels.setAccessible(true);
        Arrays.fill((int[]) levels.get(consumer.getDefaultMQPushConsumerImpl()), 1);
    }

    /** MessageModel moved between packages; its values did not. */
    private static void broadcast(DefaultMQPushConsumer consumer) {
        var model = consumer.getMessageModel();
        consumer.setMessageModel(Enum.valueOf(model.getDeclaringClass(), "BROADCASTING"));
    }

    private Runnable startPush(Sink sink, int receiver) throws Exception {
        DefaultMQPushConsumer consumer = create();
        if (options.kind("sql")) {
            consumer.subscribe(options.topic(), MessageSelector.bySql(SQL));
        } else {
            consumer.subscribe(options.topic(), options.tags());
        }
        if (options.kind("dlq")) {
            consumer.setMaxReconsumeTimes(1);
        }
        if (options.kind("fifo")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                if (refuses(messages)) {
                    return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
                }
                sink.take(receiver, messages);
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                if (refuses(messages)) {
                    context.setDelayLevelWhenNextConsume(1);
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
                sink.take(receiver, messages);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        return consumer::shutdown;
    }

    /** The first deliveries, as many as asked for; or, for the dead letter queue, one message always. */
    private boolean refuses(List<MessageExt> messages) {
        MessageExt first = messages.get(0);
        boolean ours = options.run().equals(first.getUserProperty("run"));
        if (ours && options.kind("dlq") && "0".equals(first.getUserProperty("index"))) {
            return true;
        }
        return ours && refused.getAndDecrement() > 0;
    }

    /** The broker must refuse a consumer whose SQL it cannot parse. */
    private void expectRefusal() throws Exception {
        report.expect("refusal of bad SQL");
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
            options.group() + "-bad", Signer.of(options), new AllocateMessageQueueAveragely());
        Setup.configure(consumer, options);
        consumer.subscribe(options.topic(), MessageSelector.bySql("index between and"));
        consumer.registerMessageListener(
            (MessageListenerConcurrently) (messages, context) -> ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        try {
            consumer.start();
        } catch (MQClientException refusal) {
            if (refusal.getResponseCode() == SUBSCRIPTION_PARSE_FAILED) {
                report.seen("refusal of bad SQL");
            }
            report.put("bad_sql", refusal.getResponseCode() + " " + refusal.getErrorMessage());
        }
        consumer.shutdown();
    }

    private Runnable startLite(Sink sink) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(options.group(), Signer.of(options));
        Setup.configure(consumer, options);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        if (options.kind("sql")) {
            consumer.subscribe(options.topic(), MessageSelector.bySql(SQL));
        } else {
            consumer.subscribe(options.topic(), options.tags());
        }
        consumer.start();
        Thread poller = new Thread(() -> {
            while (consumer.isRunning()) {
                List<MessageExt> messages = consumer.poll(500);
                if (!messages.isEmpty()) {
                    sink.take(0, messages);
                }
            }
        });
        poller.setDaemon(true);
        poller.start();
        return consumer::shutdown;
    }
}
