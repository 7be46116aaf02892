// org.apache.rocketmq:rocketmq-client:5.4.0
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.remoting.RPCHook;

public class Hello {
    public static void main(String[] arguments) throws Exception {
        String user = System.getenv("ROCKETMQ_ACCESS_KEY");
        String secret = System.getenv("ROCKETMQ_SECRET_KEY");
        RPCHook signer = user == null ? null : new AclClientRPCHook(new SessionCredentials(user, secret));
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("demo-java", signer);
        consumer.setNamesrvAddr("127.0.0.1:8080");
        consumer.subscribe("demo", "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> System.out.println(new String(message.getBody())));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        DefaultMQProducer producer = new DefaultMQProducer("demo-producer", signer);
        producer.setNamesrvAddr("127.0.0.1:8080");
        producer.start();
        System.out.println(producer.send(new Message("demo", "hello from Java".getBytes())));
    }
}
