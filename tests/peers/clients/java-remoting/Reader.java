import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.function.BooleanSupplier;
import java.util.function.Consumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** The classic pull consumer: queues are listed, read and acknowledged by hand. */
final class Reader implements AutoCloseable {
    private static final int BATCH = 32;
    private static final int HOUR = 3_600_000;

    private final Options options;
    private final DefaultMQPullConsumer consumer;
    private final long begin = System.currentTimeMillis();

    private Reader(Options options, DefaultMQPullConsumer consumer) throws MQClientException {
        this.options = options;
        this.consumer = consumer;
        consumer.start();
    }

    /** Read in the run's own group. */
    static Reader ofGroup(Options options) throws MQClientException {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(options.group(), Signer.of(options));
        Setup.configure(consumer, options);
        return new Reader(options, consumer);
    }

    /** Read any topic by its real name, in a group that nobody else uses. */
    static Reader ofAnyTopic(Options options) throws MQClientException {
        DefaultMQPullConsumer consumer =
            new DefaultMQPullConsumer(options.group() + "-reader", Signer.of(options));
        Setup.connect(consumer, options);
        return new Reader(options, consumer);
    }

    @Override
    public void close() {
        consumer.shutdown();
    }

    Collection<MessageQueue> queues(String topic) throws MQClientException {
        return new TreeSet<>(consumer.fetchSubscribeMessageQueues(topic));
    }

    /** How many messages a topic holds. */
    long size(String topic) throws MQClientException {
        long size = 0;
        for (MessageQueue queue : queues(topic)) {
            size += consumer.maxOffset(queue) - consumer.minOffset(queue);
        }
        return size;
    }

    /** Read a topic, which may not exist yet, from its beginning until it is enough. */
    void follow(String topic, BooleanSupplier enough, Consumer<MessageExt> sink) throws Exception {
        long deadline = System.currentTimeMillis() + options.timeoutSeconds() * 1000L;
        Map<MessageQueue, Long> next = new HashMap<>();
        while (!enough.getAsBoolean() && System.currentTimeMillis() < deadline) {
            if (!step(topic, next, sink)) {
                Thread.sleep(200);
            }
        }
    }

    private boolean step(String topic, Map<MessageQueue, Long> next, Consumer<MessageExt> sink) throws Exception {
        Collection<MessageQueue> queues;
        try {
            queues = queues(topic);
        } catch (MQClientException absent) {
            return false;
        }
        boolean found = false;
        for (MessageQueue queue : queues) {
            if (!next.containsKey(queue)) {
                next.put(queue, consumer.minOffset(queue));
            }
            PullResult result = consumer.pull(queue, "*", next.get(queue), BATCH);
            next.put(queue, result.getNextBeginOffset());
            if (result.getPullStatus() == PullStatus.FOUND) {
                result.getMsgFoundList().forEach(sink);
                found = true;
            }
        }
        return found;
    }

    /** Wait on every queue at once, each in a thread, and hand over what comes. */
    void listen(Report report, Receiver.Sink sink) throws MQClientException {
        List<Thread> threads = new ArrayList<>();
        for (MessageQueue queue : queues(options.topic())) {
            Thread thread = new Thread(() -> {
                try {
                    listen(queue, report, sink);
                } catch (Exception error) {
                    report.receiveFailed(error);
                }
            });
            thread.setDaemon(true);
            threads.add(thread);
        }
        threads.forEach(Thread::start);
    }

    private void listen(MessageQueue queue, Report report, Receiver.Sink sink) throws Exception {
        long offset = consumer.minOffset(queue);
        while (!report.complete()) {
            PullResult result = consumer.pullBlockIfNotFound(queue, options.tags(), offset, BATCH);
            offset = result.getNextBeginOffset();
            if (result.getPullStatus() == PullStatus.FOUND) {
                result.getMsgFoundList().forEach(message -> message.setBrokerName(queue.getBrokerName()));
                sink.take(0, result.getMsgFoundList());
            }
        }
    }

    /** Ask for every kind of offset; the answers must fit each other and the messages read. */
    void checkOffsets(Report report, int sent) throws Exception {
        long messages = 0;
        for (MessageQueue queue : queues(options.topic())) {
            long min = consumer.minOffset(queue);
            long max = consumer.maxOffset(queue);
            messages += max - min;
            report.claim("offsets", 0 <= min && min <= max, min + " to " + max);
            if (max > min) {
                checkTimes(report, queue, min, max);
            }
            PullResult past = consumer.pull(queue, "*", max, BATCH);
            report.claim("pull at the end", past.getPullStatus() == PullStatus.NO_NEW_MSG, past);
            PullResult illegal = consumer.pull(queue, "*", max + 1000, BATCH);
            report.claim("pull beyond", illegal.getPullStatus() == PullStatus.OFFSET_ILLEGAL
                && illegal.getNextBeginOffset() == max, illegal);
            commit(report, queue, max);
        }
        report.claim("messages in all queues", sent == 0 || messages >= sent, messages);
        report.seen("offsets");
    }

    private void checkTimes(Report report, MessageQueue queue, long min, long max) throws MQClientException {
        long now = System.currentTimeMillis();
        long earliest = consumer.earliestMsgStoreTime(queue);
        report.claim("earliest time", begin - HOUR < earliest && earliest <= now, earliest - now);
        long first = consumer.searchOffset(queue, earliest);
        report.claim("offset of earliest time", first == min, first);
        long before = consumer.searchOffset(queue, earliest - HOUR);
        report.claim("offset of an hour before", before == min, before);
        long after = consumer.searchOffset(queue, now + HOUR);
        report.claim("offset of an hour ahead", after == max, after);
    }

    private void commit(Report report, MessageQueue queue, long offset) throws Exception {
        consumer.updateConsumeOffset(queue, offset);
        consumer.getDefaultMQPullConsumerImpl().getOffsetStore().updateConsumeOffsetToBroker(queue, offset, false);
        long committed = consumer.fetchConsumeOffset(queue, true);
        report.claim("committed offset", committed == offset, committed + " instead of " + offset);
    }
}
