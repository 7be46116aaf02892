import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.BitSet;
import java.util.List;
import org.apache.rocketmq.remoting.CommandCustomHeader;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.body.AclInfo;
import org.apache.rocketmq.remoting.protocol.body.BatchAck;
import org.apache.rocketmq.remoting.protocol.body.BatchAckMessageRequestBody;
import org.apache.rocketmq.remoting.protocol.body.UserInfo;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.remoting.protocol.header.*;
import org.apache.rocketmq.remoting.protocol.header.namesrv.DeleteTopicFromNamesrvRequestHeader;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;

/** Writes requests which no official client sends to this kind of server: one frame per file. */
public final class Frames {
    private static Path target;

    public static void main(String[] words) throws Exception {
        target = Path.of(words[0]);
        RemotingCommand.createRequestCommand(0, null);
        System.setProperty(RemotingCommand.REMOTING_VERSION_KEY, "493");
        String info = "3 1700000000000 60000 2 0 broker-a 1 5";

        SendMessageRequestHeader send = new SendMessageRequestHeader();
        fill(send);
        write(RequestCode.SEND_MESSAGE, send, "a message".getBytes());
        write(RequestCode.SEND_REPLY_MESSAGE, send, "a reply".getBytes());

        GetConsumerConnectionListRequestHeader connections = new GetConsumerConnectionListRequestHeader();
        connections.setConsumerGroup("group");
        write(RequestCode.GET_CONSUMER_CONNECTION_LIST, connections, null);

        GetEarliestMsgStoretimeRequestHeader earliest = new GetEarliestMsgStoretimeRequestHeader();
        earliest.setTopic("topic");
        earliest.setQueueId(1);
        earliest.setBrokerName("broker-a");
        write(RequestCode.GET_EARLIEST_MSG_STORETIME, earliest, null);

        RecallMessageRequestHeader recall = new RecallMessageRequestHeader();
        recall.setProducerGroup("producers");
        recall.setTopic("topic");
        recall.setRecallHandle("djEgdG9waWMgYnJva2VyLWEgMTcwMDAwMDAwMDAwMCAwQQ==");
        recall.setBrokerName("broker-a");
        write(RequestCode.RECALL_MESSAGE, recall, null);

        ViewMessageRequestHeader view = new ViewMessageRequestHeader();
        view.setTopic("topic");
        view.setOffset(4711L);
        write(RequestCode.VIEW_MESSAGE_BY_ID, view, null);

        PullMessageRequestHeader pull = new PullMessageRequestHeader();
        pull.setConsumerGroup("group");
        pull.setTopic("topic");
        pull.setQueueId(1);
        pull.setQueueOffset(5L);
        pull.setMaxMsgNums(32);
        pull.setSysFlag(22);
        pull.setCommitOffset(0L);
        pull.setSuspendTimeoutMillis(15000L);
        pull.setSubscription("*");
        pull.setSubVersion(0L);
        pull.setExpressionType("TAG");
        pull.setBrokerName("broker-a");
        write(RequestCode.LITE_PULL_MESSAGE, pull, null);

        PopMessageRequestHeader pop = new PopMessageRequestHeader();
        pop.setConsumerGroup("group");
        pop.setTopic("topic");
        pop.setQueueId(-1);
        pop.setMaxMsgNums(32);
        pop.setInvisibleTime(60000L);
        pop.setPollTime(15000L);
        pop.setBornTime(1700000000000L);
        pop.setInitMode(1);
        pop.setExpType("TAG");
        pop.setExp("*");
        pop.setOrder(false);
        pop.setBrokerName("broker-a");
        write(RequestCode.POP_MESSAGE, pop, null);

        AckMessageRequestHeader ack = new AckMessageRequestHeader();
        ack.setConsumerGroup("group");
        ack.setTopic("topic");
        ack.setQueueId(1);
        ack.setExtraInfo(info);
        ack.setOffset(5L);
        ack.setBrokerName("broker-a");
        write(RequestCode.ACK_MESSAGE, ack, null);

        BatchAck batch = new BatchAck();
        batch.setConsumerGroup("group");
        batch.setTopic("topic");
        batch.setRetry("0");
        batch.setStartOffset(3);
        batch.setQueueId(1);
        batch.setReviveQueueId(2);
        batch.setPopTime(1700000000000L);
        batch.setInvisibleTime(60000);
        BitSet bits = new BitSet();
        bits.set(0);
        bits.set(2);
        batch.setBitSet(bits);
        BatchAckMessageRequestBody body = new BatchAckMessageRequestBody();
        body.setBrokerName("broker-a");
        body.setAcks(List.of(batch));
        write(RequestCode.BATCH_ACK_MESSAGE, null, body.encode());

        PeekMessageRequestHeader peek = new PeekMessageRequestHeader();
        peek.setConsumerGroup("group");
        peek.setTopic("topic");
        peek.setQueueId(1);
        peek.setMaxMsgNums(8);
        peek.setBrokerName("broker-a");
        write(RequestCode.PEEK_MESSAGE, peek, null);

        ChangeInvisibleTimeRequestHeader change = new ChangeInvisibleTimeRequestHeader();
        change.setConsumerGroup("group");
        change.setTopic("topic");
        change.setQueueId(1);
        change.setExtraInfo(info);
        change.setOffset(5L);
        change.setInvisibleTime(10000L);
        change.setBrokerName("broker-a");
        write(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, change, null);

        NotificationRequestHeader notification = new NotificationRequestHeader();
        notification.setConsumerGroup("group");
        notification.setTopic("topic");
        notification.setQueueId(1);
        notification.setPollTime(15000L);
        notification.setBornTime(1700000000000L);
        notification.setOrder(false);
        notification.setBrokerName("broker-a");
        write(RequestCode.NOTIFICATION, notification, null);

        PollingInfoRequestHeader polling = new PollingInfoRequestHeader();
        polling.setConsumerGroup("group");
        polling.setTopic("topic");
        polling.setQueueId(1);
        polling.setBrokerName("broker-a");
        write(RequestCode.POLLING_INFO, polling, null);
        tools();
    }

    /** What mqadmin sends to brokers and name servers. */
    private static void tools() throws Exception {
        write(RequestCode.GET_ALL_TOPIC_CONFIG, null, null);
        write(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, null, null);

        CreateTopicRequestHeader create = new CreateTopicRequestHeader();
        create.setTopic("topic");
        create.setDefaultTopic("TBW102");
        create.setReadQueueNums(8);
        create.setWriteQueueNums(8);
        create.setPerm(6);
        create.setTopicFilterType("SINGLE_TAG");
        create.setTopicSysFlag(0);
        create.setOrder(false);
        create.setAttributes("+message.type=FIFO");
        write(RequestCode.UPDATE_AND_CREATE_TOPIC, create, null);

        DeleteTopicRequestHeader delete = new DeleteTopicRequestHeader();
        delete.setTopic("topic");
        write(RequestCode.DELETE_TOPIC_IN_BROKER, delete, null);

        DeleteTopicFromNamesrvRequestHeader forget = new DeleteTopicFromNamesrvRequestHeader();
        forget.setTopic("topic");
        write(RequestCode.DELETE_TOPIC_IN_NAMESRV, forget, null);

        DeleteSubscriptionGroupRequestHeader disband = new DeleteSubscriptionGroupRequestHeader();
        disband.setGroupName("group");
        disband.setCleanOffset(true);
        write(RequestCode.DELETE_SUBSCRIPTIONGROUP, disband, null);

        GetTopicStatsInfoRequestHeader stats = new GetTopicStatsInfoRequestHeader();
        stats.setTopic("topic");
        write(RequestCode.GET_TOPIC_STATS_INFO, stats, null);

        SubscriptionGroupConfig group = new SubscriptionGroupConfig();
        group.setGroupName("group");
        write(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, null, RemotingSerializable.encode(group));

        GetConsumeStatsRequestHeader progress = new GetConsumeStatsRequestHeader();
        progress.setConsumerGroup("group");
        progress.setTopic("topic");
        write(RequestCode.GET_CONSUME_STATS, progress, null);

        ResetOffsetRequestHeader reset = new ResetOffsetRequestHeader();
        reset.setTopic("topic");
        reset.setGroup("group");
        reset.setTimestamp(1700000000000L);
        reset.setForce(true);
        write(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset, null);

        write(RequestCode.GET_BROKER_CLUSTER_INFO, null, null);

        ViewBrokerStatsDataRequestHeader figures = new ViewBrokerStatsDataRequestHeader();
        figures.setStatsName("TOPIC_PUT_NUMS");
        figures.setStatsKey("topic");
        write(RequestCode.VIEW_BROKER_STATS_DATA, figures, null);
        users();
        acls();

        GetTopicConfigRequestHeader topic = new GetTopicConfigRequestHeader();
        topic.setTopic("topic");
        write(RequestCode.GET_TOPIC_CONFIG, topic, null);

        GetSubscriptionGroupConfigRequestHeader members = new GetSubscriptionGroupConfigRequestHeader();
        members.setGroup("group");
        write(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, members, null);
    }

    private static void users() throws Exception {
        byte[] user = RemotingSerializable.encode(UserInfo.of("alice", "secret", "Normal", "enable"));
        write(RequestCode.AUTH_CREATE_USER, new CreateUserRequestHeader("alice"), user);
        write(RequestCode.AUTH_UPDATE_USER, new UpdateUserRequestHeader("alice"), user);
        write(RequestCode.AUTH_DELETE_USER, new DeleteUserRequestHeader("alice"), null);
        write(RequestCode.AUTH_GET_USER, new GetUserRequestHeader("alice"), null);
        write(RequestCode.AUTH_LIST_USER, new ListUsersRequestHeader("ali"), null);
    }

    private static void acls() throws Exception {
        AclInfo info = AclInfo.of("User:alice", List.of("Topic:topic"), List.of("Pub", "Sub"), null, "Allow");
        byte[] acl = RemotingSerializable.encode(info);
        write(RequestCode.AUTH_CREATE_ACL, new CreateAclRequestHeader("User:alice"), acl);
        write(RequestCode.AUTH_UPDATE_ACL, new UpdateAclRequestHeader("User:alice"), acl);
        write(RequestCode.AUTH_DELETE_ACL, new DeleteAclRequestHeader("User:alice", "Topic:topic"), null);
        write(RequestCode.AUTH_GET_ACL, new GetAclRequestHeader("User:alice"), null);
        write(RequestCode.AUTH_LIST_ACL, new ListAclsRequestHeader("alice", "topic"), null);
    }

    private static void fill(SendMessageRequestHeader send) {
        send.setProducerGroup("producers");
        send.setTopic("topic");
        send.setDefaultTopic("TBW102");
        send.setDefaultTopicQueueNums(4);
        send.setQueueId(1);
        send.setSysFlag(0);
        send.setBornTimestamp(1700000000000L);
        send.setFlag(7);
        send.setProperties("KEYS\u0001k\u0002TAGS\u0001a\u0002");
        send.setReconsumeTimes(0);
        send.setUnitMode(false);
        send.setMaxReconsumeTimes(16);
        send.setBatch(false);
        send.setBrokerName("broker-a");
    }

    private static void write(int code, CommandCustomHeader header, byte[] body) throws Exception {
        RemotingCommand command = RemotingCommand.createRequestCommand(code, header);
        command.setVersion(493);
        command.setBody(body);
        ByteBuffer frame = command.encode();
        byte[] bytes = new byte[frame.remaining()];
        frame.get(bytes);
        Files.write(target.resolve(Integer.toString(code)), bytes);
    }
}
