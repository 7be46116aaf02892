import java.util.Arrays;
import java.util.List;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** What senders and receivers have in common. */
final class Setup {
    static final String NAMESPACE = "ns1";
    // The client's own constant; 4.9.4 does not have it yet.
    static final String SHARDING_KEY = "__SHARDINGKEY";

    private Setup() {
    }

    static void configure(ClientConfig client, Options options) {
        connect(client, options);
        if (options.kind("namespace")) {
            client.setNamespace(NAMESPACE);
        }
    }

    /** Configure a client that sees the real names of topics and groups. */
    static void connect(ClientConfig client, Options options) {
        client.setNamesrvAddr(options.endpoint());
        client.setInstanceName("peers-" + System.nanoTime());
        client.setVipChannelEnabled(options.flag("vip"));
        client.setUseTLS(options.flag("tls"));
        // Three seconds by default, which a busy test machine exceeds.
        client.setMqClientApiTimeout(10_000);
    }

    static Message message(Options options, int index) {
        Sample sample = new Sample(options.run(), index, options.size());
        Message message = new Message(options.topic(), sample.tag(), sample.body());
        message.setKeys(sample.keys());
        sample.properties().forEach(message::putUserProperty);
        return message;
    }

    static List<String> keys(MessageExt message) {
        String keys = message.getKeys();
        return keys == null ? List.of() : Arrays.asList(keys.split(" "));
    }

    static boolean has(Class<?> type, String method) {
        return Arrays.stream(type.getMethods()).anyMatch(m -> m.getName().equals(method));
    }

    /** Call a setter that 4.9 clients lack. */
    static void set(Object target, String method, Class<?> type, Object value) throws ReflectiveOperationException {
        target.getClass().getMethod(method, type).invoke(target, value);
    }
}
