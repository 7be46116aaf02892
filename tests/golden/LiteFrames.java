import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Set;
import org.apache.rocketmq.common.lite.LiteSubscriptionAction;
import org.apache.rocketmq.common.lite.LiteSubscriptionDTO;
import org.apache.rocketmq.remoting.CommandCustomHeader;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.body.LiteSubscriptionCtlRequestBody;
import org.apache.rocketmq.remoting.protocol.header.*;

/** Writes requests that RocketMQ has from 5.5 on: one frame per file. */
public final class LiteFrames {
    private static Path target;

    public static void main(String[] words) throws Exception {
        target = Path.of(words[0]);
        RemotingCommand.createRequestCommand(0, null);
        System.setProperty(RemotingCommand.REMOTING_VERSION_KEY, "493");

        PopLiteMessageRequestHeader pop = new PopLiteMessageRequestHeader();
        pop.setClientId("client");
        pop.setConsumerGroup("group");
        pop.setTopic("topic");
        pop.setMaxMsgNum(32);
        pop.setInvisibleTime(60000L);
        pop.setPollTime(15000L);
        pop.setBornTime(1700000000000L);
        pop.setAttemptId("attempt");
        pop.setBrokerName("broker-a");
        write(RequestCode.POP_LITE_MESSAGE, pop, null);

        LiteSubscriptionDTO subscription = new LiteSubscriptionDTO();
        subscription.setAction(LiteSubscriptionAction.COMPLETE_ADD);
        subscription.setClientId("client");
        subscription.setGroup("group");
        subscription.setTopic("topic");
        subscription.setLiteTopicSet(Set.of("lite"));
        subscription.setVersion(1);
        LiteSubscriptionCtlRequestBody body = new LiteSubscriptionCtlRequestBody();
        body.setSubscriptionSet(Set.of(subscription));
        LiteSubscriptionCtlRequestHeader control = new LiteSubscriptionCtlRequestHeader();
        control.setBrokerName("broker-a");
        write(RequestCode.LITE_SUBSCRIPTION_CTL, control, body.encode());

        NotifyUnsubscribeLiteRequestHeader notice = new NotifyUnsubscribeLiteRequestHeader();
        notice.setClientId("client");
        notice.setConsumerGroup("group");
        notice.setLiteTopic("lite");
        notice.setBrokerName("broker-a");
        write(RequestCode.NOTIFY_UNSUBSCRIBE_LITE, notice, null);
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
